// A libcuda.so.1 with which cuDNN builds plans for GPUs that are described, on machines without a
// driver. cuDNN loads the kernels that it has compiled and looks up their sizes: that works here.
// The driver's other functions refuse, as those of the toolkit's stub do, so nothing can run.

extern "C" {

enum { kSuccess = 0, kInvalidValue = 1, kStubLibrary = 34 };  // CUresult

// ---- Modules and kernels: every one is there ----

// What a handle of a library, module, kernel or function points to.
static char loaded;

static int give(void** handle) {
  if (handle == nullptr) return kInvalidValue;
  *handle = &loaded;
  return kSuccess;
}

int cuLibraryLoadData(void** library) { return give(library); }
int cuLibraryGetModule(void** module) { return give(module); }
int cuLibraryGetKernel(void** kernel) { return give(kernel); }
int cuKernelGetFunction(void** function) { return give(function); }
int cuModuleLoadData(void** module) { return give(module); }
int cuModuleLoadDataEx(void** module) { return give(module); }
int cuModuleGetFunction(void** function) { return give(function); }
int cuLibraryUnload() { return kSuccess; }
int cuModuleUnload() { return kSuccess; }

// A kernel runs blocks of up to 1024 threads and has no static memory of its own.
static int attribute_of_kernel(int* value, int attribute) {
  enum { kMaxThreadsPerBlock = 0 };  // CUfunction_attribute
  if (value == nullptr) return kInvalidValue;
  *value = attribute == kMaxThreadsPerBlock ? 1024 : 0;
  return kSuccess;
}

int cuKernelGetAttribute(int* value, int attribute) {
  return attribute_of_kernel(value, attribute);
}
int cuFuncGetAttribute(int* value, int attribute) { return attribute_of_kernel(value, attribute); }
int cuKernelSetAttribute() { return kSuccess; }
int cuFuncSetAttribute() { return kSuccess; }

int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}

// ---- What needs a GPU. cuDNN loads no driver that lacks one of these ----

#define REFUSES(name) \
  int name() { return kStubLibrary; }

REFUSES(cuInit)
REFUSES(cuGetErrorName)
REFUSES(cuGetErrorString)
REFUSES(cuGetProcAddress)
REFUSES(cuGetProcAddress_v2)
REFUSES(cuDeviceGet)
REFUSES(cuDeviceGetAttribute)
REFUSES(cuDeviceGetCount)
REFUSES(cuCtxGetCurrent)
REFUSES(cuCtxGetLimit)
REFUSES(cuCtxPopCurrent)
REFUSES(cuCtxPopCurrent_v2)
REFUSES(cuCtxPushCurrent)
REFUSES(cuCtxPushCurrent_v2)
REFUSES(cuStreamGetCtx)
REFUSES(cuLibraryLoadFromFile)
REFUSES(cuLinkAddData)
REFUSES(cuLinkAddData_v2)
REFUSES(cuLinkComplete)
REFUSES(cuLinkCreate)
REFUSES(cuLinkCreate_v2)
REFUSES(cuLinkDestroy)
REFUSES(cuLaunchCooperativeKernel)
REFUSES(cuLaunchKernel)
REFUSES(cuLaunchKernelEx)
REFUSES(cuOccupancyMaxPotentialClusterSize)
REFUSES(cuOccupancyMaxActiveBlocksPerMultiprocessor)
REFUSES(cuOccupancyMaxActiveClusters)
REFUSES(cuTensorMapEncodeIm2col)
REFUSES(cuTensorMapEncodeTiled)

}  // extern "C"
