// C interface to the kernels of FlashSigmoid (apple/ml-sigmoid-attention), for flash_sigmoid.py:
// bfloat16, head dimensions 64 and 128, without mask and dropout.

#include <cmath>
#include <cstdint>
#include <tuple>

#include <cuda_runtime.h>

// Replacements for the parts of torch that the sources use. Torch's headers are empty files here.
static cudaError_t failure = cudaSuccess;  // the first error
static void record_error(cudaError_t result) {
  if (failure == cudaSuccess) failure = result;
}
#define C10_CUDA_CHECK record_error
#define C10_CUDA_KERNEL_LAUNCH_CHECK() record_error(cudaGetLastError())

namespace at {
struct PhiloxCudaState {};
namespace cuda {
inline cudaDeviceProp* getCurrentDeviceProperties() {
  static cudaDeviceProp properties;
  static const cudaError_t result = cudaGetDeviceProperties(&properties, 0);
  record_error(result);
  return &properties;
}
namespace philox {
__host__ __device__ inline std::tuple<uint64_t, uint64_t> unpack(PhiloxCudaState) {
  return std::make_tuple(uint64_t(0), uint64_t(0));
}
}  // namespace philox
}  // namespace cuda
}  // namespace at

// Unused variants are not compiled: NEVER replaces a condition by false, EITHER keeps it.
#define FLASHATTENTION_DISABLE_DROPOUT
#define FLASHATTENTION_DISABLE_ALIBI
#define FLASHATTENTION_DISABLE_UNEVEN_K
#define FLASHATTENTION_DISABLE_LOCAL
#include "static_switch.h"
#undef BOOL_SWITCH
#define BOOL_SWITCH(CONDITION, NAME, ...) SWITCH_##NAME(CONDITION, NAME, __VA_ARGS__)
#define NEVER(CONDITION, NAME, ...)           \
  [&] {                                       \
    constexpr static bool NAME = false;       \
    return __VA_ARGS__();                     \
  }()
#define EITHER(CONDITION, NAME, ...)          \
  [&] {                                       \
    if (CONDITION) {                          \
      constexpr static bool NAME = true;      \
      return __VA_ARGS__();                   \
    } else {                                  \
      constexpr static bool NAME = false;     \
      return __VA_ARGS__();                   \
    }                                         \
  }()
#define SWITCH_IsEvenMNConst EITHER
#define SWITCH_Is_causal NEVER
#define SWITCH_ReturnSoftmaxConst NEVER
#define SWITCH_Split NEVER
#define SWITCH_Append_KV NEVER

#include "flash_bwd_launch_template.h"
#include "flash_fwd_launch_template.h"

static int rounded_up(int number, int multiple) {
  return (number + multiple - 1) / multiple * multiple;
}

// Tensors are contiguous, (sequences, length, heads, dimension).
static void fill(Flash_fwd_params& params, void* q, void* k, void* v, void* out, int sequences,
                 int length, int heads, int dimension, float scale, float bias) {
  const int64_t row = int64_t(heads) * dimension;
  params.q_ptr = q;
  params.k_ptr = k;
  params.v_ptr = v;
  params.o_ptr = out;
  params.q_batch_stride = params.k_batch_stride = params.v_batch_stride = length * row;
  params.q_row_stride = params.k_row_stride = params.v_row_stride = row;
  params.q_head_stride = params.k_head_stride = params.v_head_stride = dimension;
  params.o_batch_stride = length * row;
  params.o_row_stride = row;
  params.o_head_stride = dimension;
  params.b = sequences;
  params.h = params.h_k = heads;
  params.h_h_k_ratio = 1;
  params.seqlen_q = params.seqlen_k = length;
  params.seqlen_q_rounded = params.seqlen_k_rounded = rounded_up(length, 128);
  params.d = params.d_rounded = dimension;
  params.scale_softmax = params.scale_softmax_rp_dropout = scale;
  params.scale_softmax_log2 = float(scale * M_LOG2E);
  params.p_dropout = params.rp_dropout = 1.0f;
  params.p_dropout_in_uint8_t = 255;
  params.window_size_left = params.window_size_right = -1;
  params.is_bf16 = params.is_seqlens_k_cumulative = true;
  params.num_splits = 1;
  // The kernels add the bias to scores before they scale them.
  params.sigmoid_bias = bias / scale;
}

// Return the message of the first error since the last call, or null.
static const char* error_message() {
  const cudaError_t first = failure;
  failure = cudaSuccess;
  return first == cudaSuccess ? nullptr : cudaGetErrorString(first);
}

extern "C" const char* flash_sigmoid_forward(void* q, void* k, void* v, void* out, int sequences,
                                             int length, int heads, int dimension, float scale,
                                             float bias, cudaStream_t stream) {
  Flash_fwd_params params{};
  fill(params, q, k, v, out, sequences, length, heads, dimension, scale, bias);
  if (dimension == 64)
    run_mha_fwd_hdim64<cutlass::bfloat16_t>(params, stream);
  else
    run_mha_fwd_hdim128<cutlass::bfloat16_t>(params, stream);
  return error_message();
}

// `dq_sums` is float32 workspace: (sequences, length rounded up to 128, heads, dimension).
extern "C" const char* flash_sigmoid_backward(void* q, void* k, void* v, void* out, int sequences,
                                              int length, int heads, int dimension, float scale,
                                              float bias, cudaStream_t stream, void* grad, void* dq,
                                              void* dk, void* dv, void* dq_sums) {
  Flash_bwd_params params{};
  fill(params, q, k, v, out, sequences, length, heads, dimension, scale, bias);
  params.do_ptr = grad;
  params.dq_ptr = dq;
  params.dk_ptr = dk;
  params.dv_ptr = dv;
  params.do_batch_stride = params.dq_batch_stride = params.q_batch_stride;
  params.dk_batch_stride = params.dv_batch_stride = params.q_batch_stride;
  params.do_row_stride = params.dq_row_stride = params.q_row_stride;
  params.dk_row_stride = params.dv_row_stride = params.q_row_stride;
  params.do_head_stride = params.dq_head_stride = params.q_head_stride;
  params.dk_head_stride = params.dv_head_stride = params.q_head_stride;
  params.dq_accum_ptr = dq_sums;
  // Without dropout the state is not used, but the kernels may read it.
  params.rng_state = static_cast<uint64_t*>(dq_sums);
  if (dimension == 64)
    run_mha_bwd_hdim64<cutlass::bfloat16_t>(params, stream);
  else
    run_mha_bwd_hdim128<cutlass::bfloat16_t>(params, stream);
  return error_message();
}
