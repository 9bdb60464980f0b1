// Stands in for libcudart.so.12 where cudnn-frontend chooses a runtime.
extern "C" __attribute__((visibility("default"))) int cudaRuntimeGetVersion(int* version) {
  *version = 12060;
  return 0;
}
