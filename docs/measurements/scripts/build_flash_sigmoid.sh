#!/bin/bash
# Build the kernels of FlashSigmoid for the benchmark, without torch and without a GPU.
#
#     docs/measurements/scripts/build_flash_sigmoid.sh CHECKOUT LIBRARY [FOLDER ...]
#
# CHECKOUT is a clone of https://github.com/apple/ml-sigmoid-attention. LIBRARY is the file to write.
# Each FOLDER contains further headers: the headers of CUTLASS 3.4 if the clone lacks its submodule.
# The environment variable NVCC is the CUDA compiler (default: nvcc).
set -euo pipefail
checkout=$1 library=$2
shift 2
sources=$(find "$checkout" -name flash_bwd_launch_template.h -printf '%h\n' | sort | sed -n 1p)
if [ -z "$sources" ]; then
    echo "$checkout: flash_bwd_launch_template.h is missing; clone ml-sigmoid-attention" >&2
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
