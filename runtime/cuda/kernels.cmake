# The files of kernels. Those of `cuda_kernels_of_libraries` call CUB, which only a CUDA compiler compiles.
set(cuda_kernel_sources
  ops/activations.cu ops/attention.cu ops/batch_norm.cu flat/column_sum.cu flat/content_hash.cu
  conv2d/conv2d.cu ops/dropout.cu ops/elementwise.cu ops/embedding.cu ops/image_normalize.cu
  ops/layer_norm.cu ops/local_response_norm.cu ops/loss_rows.cu flat/power_sgd.cu
  flat/optimizers.cu flat/orthonormalize.cu ops/padded_identity.cu matmul/plain_product.cu
  ops/pointwise_losses.cu ops/pooling.cu ops/softmax_cross_entropy.cu flat/tree_sum.cu)
set(cuda_kernels_of_libraries ops/token_sort.cu)
