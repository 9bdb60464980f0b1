// Stands in for libcuda.so.1 where the program asks the driver how many GPUs there are: FAKE_GPUS
// (1).
#include <cstdlib>

extern "C" {

__attribute__((visibility("default"))) int cuInit(unsigned flags) { return flags == 0 ? 0 : 1; }

__attribute__((visibility("default"))) int cuDeviceGetCount(int* count) {
  const char* const text = std::getenv("FAKE_GPUS");
  *count = text == nullptr ? 1 : std::atoi(text);
  return 0;
}
}
