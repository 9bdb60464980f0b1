#pragma once
// Functions marked LOCKSTEP_HD compile for the host and, under nvcc, for the device too.
#ifdef __CUDACC__
#define LOCKSTEP_HD __host__ __device__ __forceinline__
#else
#define LOCKSTEP_HD inline
#endif
