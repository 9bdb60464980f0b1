# The kernel files. Those in `cuda_kernels_of_libraries` use CUB, which only a CUDA compiler can
# compile.
include(${CMAKE_CURRENT_LIST_DIR}/../graph/ops.cmake)
op_sources(cuda_ops ops .cu)
set(cuda_kernel_sources
  ${cuda_ops} ops/attention_padding.cu ops/batch_norm_backward.cu ops/flash_attention.cu
  ops/flash_attention_backward.cu ops/loss_rows.cu conv2d/conv2d.cu flat/adafactor.cu flat/add_rows.cu
  flat/bit_checksum.cu flat/column_sum.cu flat/content_hash.cu flat/operation_mark.cu
  flat/optimizers.cu flat/orthonormalize.cu flat/power_sgd.cu flat/squares.cu flat/tree_sum.cu
  flat/update_decision.cu matmul/newton_schulz_steps.cu matmul/plain_product.cu)
set(cuda_kernels_of_libraries ops/token_sort.cu)
