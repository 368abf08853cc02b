#!/bin/bash
# Build FlashSigmoid's kernels, to time them: minutes of one core, and no GPU.
#
#     workflow/scripts/build_flash_sigmoid.sh ml-sigmoid-attention flash_sigmoid.so [FOLDER ...]
#
# Its package takes one old torch; its kernels need none.  The first argument is a checkout of
# https://github.com/apple/ml-sigmoid-attention, the second the library to write, the others are
# further folders with headers: CUTLASS 3.4's where the checkout lacks its submodule.  NVCC names
# CUDA's compiler.
set -euo pipefail
checkout=$1 library=$2
shift 2
sources=$(find "$checkout" -name flash_bwd_launch_template.h -printf '%h\n' | sort | sed -n 1p)
if [ -z "$sources" ]; then
    echo "$checkout: no flash_bwd_launch_template.h in it" >&2
    exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The torch headers that the sources include are replaced by empty files.
mkdir -p "$work/ATen/cuda"
touch "$work"/ATen/cuda/{CUDAContext.h,CUDAGeneratorImpl.h,CUDAGraphsUtils.cuh}
"${NVCC:-nvcc}" -O3 -std=c++20 -arch=sm_90 --expt-relaxed-constexpr --expt-extended-lambda \
    --use_fast_math -shared -Xcompiler -fPIC -U__CUDA_NO_HALF_OPERATORS__ \
    -U__CUDA_NO_HALF_CONVERSIONS__ -U__CUDA_NO_BFLOAT16_CONVERSIONS__ \
    "-I$work" "-I$sources" "${@/#/-I}" "-I$sources/../../cutlass/include" \
    "$(dirname "$0")/flash_sigmoid.cu" -o "$work/library.so"
mv "$work/library.so" "$library"
