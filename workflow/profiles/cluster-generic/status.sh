#!/bin/sh
# Print the state of a job of PBS, LSF or Grid Engine for Snakemake: success, failed or running.
# A job that the cluster does not know yet is running.
if command -v bjobs >/dev/null; then
  case $(bjobs -noheader -o stat "$1") in
    DONE) echo success ;;
    EXIT) echo failed ;;
    *) echo running ;;
  esac
elif command -v qacct >/dev/null; then
  if qstat -j "$1" >/dev/null 2>&1; then
    echo running
  else
    qacct -j "$1" 2>/dev/null | awk '
      $1 == "failed" || $1 == "exit_status" { known = 1; bad += $2 != 0 }
      END { print !known ? "running" : bad ? "failed" : "success" }'
  fi
else
  qstat -x -f "$1" 2>/dev/null | awk '
    $1 == "job_state" { ended = $3 == "F" }
    $1 == "Exit_status" { code = $3 }
    END { print !ended ? "running" : code == "0" ? "success" : "failed" }'
fi
