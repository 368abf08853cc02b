"""Run the kernel tutorial, and name what embeddings need. Needs torch, triton and numpy only.

The argument is the notebook.
"""

import json
import sys
from pathlib import Path

notebook = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
exec(compile("\n".join(cells), sys.argv[1], "exec"), {"__name__": "__main__"})  # noqa: S102

import scsigmoid  # noqa: E402

try:
    print(scsigmoid.embed)
except ModuleNotFoundError as error:
    print(f"embed: {error}")
