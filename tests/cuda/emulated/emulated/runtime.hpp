// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The runtime's calls: devices, memory, streams, events, graphs, launches.
///
/// Two devices of 1 GiB. Work on a stream is done when something waits for it, or, under seeds other than 0, at times
/// drawn from the seed; host memory of a copy is read and written at that time unless it is pageable.

#include "emulated/vectors.hpp"

#include <cstddef>
#include <functional>
#include <utility>

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidMemcpyDirection = 21,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorHostMemoryAlreadyRegistered = 712,
  cudaErrorHostMemoryNotRegistered = 713,
  cudaErrorLaunchFailure = 719,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorUnsupportedPtxVersion = 222,
  cudaErrorNotSupported = 801,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
};
char const* cudaGetErrorString(cudaError_t);
char const* cudaGetErrorName(cudaError_t);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

// ---- Devices ----
enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
  cudaDevAttrMemoryPoolsSupported = 115,
};
struct cudaDeviceProp {
  char name[256];
  std::size_t totalGlobalMem;
  int major, minor, multiProcessorCount;
};
cudaError_t cudaGetDeviceCount(int*);
cudaError_t cudaSetDevice(int);
cudaError_t cudaGetDevice(int*);
cudaError_t cudaDeviceGetAttribute(int*, cudaDeviceAttr, int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp*, int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceReset();
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
cudaError_t cudaDriverGetVersion(int*);
cudaError_t cudaRuntimeGetVersion(int*);

// ---- Streams and events ----
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;
struct CUmemPoolHandle_st;
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;
using cudaGraph_t = CUgraph_st*;
using cudaGraphExec_t = CUgraphExec_st*;
using cudaMemPool_t = CUmemPoolHandle_st*;

/// Every thread has one of its own on every device.
inline cudaStream_t const cudaStreamPerThread = reinterpret_cast<cudaStream_t>(2);
inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDefault = 0;
inline constexpr unsigned cudaEventDisableTiming = 2;
cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t*, unsigned flags, int priority);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaStreamDestroy(cudaStream_t);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamQuery(cudaStream_t);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned flags = 0);
cudaError_t cudaLaunchHostFunc(cudaStream_t, void (*)(void*), void*);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t);
/// External ones are of captured work: recorded in every run of it.
inline constexpr unsigned cudaEventRecordDefault = 0;
inline constexpr unsigned cudaEventRecordExternal = 1;
cudaError_t cudaEventRecordWithFlags(cudaEvent_t, cudaStream_t, unsigned flags);
cudaError_t cudaEventQuery(cudaEvent_t);
cudaError_t cudaEventSynchronize(cudaEvent_t);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);

// ---- Memory ----
enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4,
};
enum cudaMemoryType {
  cudaMemoryTypeUnregistered = 0,
  cudaMemoryTypeHost = 1,
  cudaMemoryTypeDevice = 2,
};
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
  void* devicePointer;
  void* hostPointer;
};
enum cudaMemPoolAttr {
  cudaMemPoolAttrReleaseThreshold = 4,
  cudaMemPoolAttrReservedMemCurrent = 5,
  cudaMemPoolAttrUsedMemCurrent = 7
};
inline constexpr unsigned cudaHostAllocDefault = 0;
inline constexpr unsigned cudaHostAllocPortable = 1;
inline constexpr unsigned cudaHostRegisterDefault = 0;
inline constexpr unsigned cudaHostRegisterPortable = 1;
cudaError_t cudaMalloc(void**, std::size_t bytes);
cudaError_t cudaFree(void*);
cudaError_t cudaMallocAsync(void**, std::size_t bytes, cudaStream_t);
cudaError_t cudaMallocFromPoolAsync(void**, std::size_t bytes, cudaMemPool_t, cudaStream_t);
cudaError_t cudaFreeAsync(void*, cudaStream_t);
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t*, int device);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value);
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value);
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t bytes_to_keep);
cudaError_t cudaHostAlloc(void**, std::size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void*);
cudaError_t cudaHostRegister(void*, std::size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void*);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes*, void const*);
cudaError_t cudaMemcpyAsync(void* to, void const* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t);
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, void const* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind, cudaStream_t);
cudaError_t cudaMemsetAsync(void*, int value, std::size_t bytes, cudaStream_t);

// ---- Graphs ----
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1,
  cudaStreamCaptureModeRelaxed = 2,
};
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone = 0,
  cudaStreamCaptureStatusActive = 1,
  cudaStreamCaptureStatusInvalidated = 2,
};
struct CUgraphNode_st;
using cudaGraphNode_t = CUgraphNode_st*;
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode);
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*);
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus*);
cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t* nodes, std::size_t* count);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t);
cudaError_t cudaGraphDestroy(cudaGraph_t);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t);

// ---- Launches ----
enum cudaLaunchAttributeID {
  cudaLaunchAttributeClusterDimension = 4,
  cudaLaunchAttributeProgrammaticStreamSerialization = 6,
};
union cudaLaunchAttributeValue {
  struct {
    unsigned x, y, z;
  } clusterDim;
  int programmaticStreamSerializationAllowed;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};

namespace emulated {
/// Puts a kernel on its stream: `body` runs once for every thread.
cudaError_t launch(cudaLaunchConfig_t, void const* kernel, std::function<void()> body);
cudaError_t set_attribute(void const* kernel, cudaFuncAttribute, int value);
cudaError_t blocks_per_processor(int* blocks, void const* kernel, int threads, std::size_t shared_bytes);

/// Whether the program holds code for the devices: from now on it does, or does not.
void hold_code(bool held);
bool code_is_held();

/// Why the last launch failed, with the place in the kernel. For the tests of the emulation.
char const* diagnosis();
/// From now on orders are drawn from this seed; 0 keeps every order as it is written and does work as late as it may.
void set_seed(unsigned long long seed);
/// Pieces of work that wait on all streams.
std::size_t work_waiting();
}  // namespace emulated

template <class... Expected, class... Actual>
cudaError_t cudaLaunchKernelEx(cudaLaunchConfig_t const* config, void (*kernel)(Expected...), Actual&&... arguments) {
  return emulated::launch(*config, reinterpret_cast<void const*>(kernel),
                          [kernel, ... copies = Expected(std::forward<Actual>(arguments))] { kernel(copies...); });
}
struct cudaFuncAttributes {
  int numRegs = 0;
};
template <class... Expected>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*)(Expected...)) {
  *attributes = {};
  return emulated::code_is_held() ? cudaSuccess : cudaErrorNoKernelImageForDevice;
}
template <class... Expected>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Expected...), cudaFuncAttribute attribute, int value) {
  return emulated::set_attribute(reinterpret_cast<void const*>(kernel), attribute, value);
}
template <class... Expected>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void (*kernel)(Expected...), int threads,
                                                          std::size_t shared_bytes) {
  return emulated::blocks_per_processor(blocks, reinterpret_cast<void const*>(kernel), threads, shared_bytes);
}
