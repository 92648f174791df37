// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// The part of NCCL's header that tutti uses, for a machine without NCCL: ranks are threads of one process with the
/// devices of the emulated runtime. Names and meanings are NCCL's; what differs is said where it is declared.
///
/// A communicator is as strict as NCCL allows itself to be: after every call of a non-blocking one nothing has happened
/// yet, and another call is refused until ncclCommGetAsyncError has said so. Calls that do not match never complete.

#include <cuda_runtime.h>

#include <climits>
#include <cstddef>
#include <string>

#define NCCL_MAJOR 2
#ifndef NCCL_MINOR  // an older header, as far as it differs
#define NCCL_MINOR 28
#endif
#define NCCL_PATCH 9
#define NCCL_VERSION(X, Y, Z) ((X) * 10000 + (Y) * 100 + (Z))
#define NCCL_VERSION_CODE NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH)

struct ncclComm;
using ncclComm_t = ncclComm*;
#if NCCL_MINOR >= 27
struct ncclWindow_vidmem;
using ncclWindow_t = ncclWindow_vidmem*;
#endif
struct ncclUniqueId {
  char internal[128];
};

enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};
enum ncclRedOp_t { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 };
enum ncclDataType_t {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
};
struct ncclConfig_t {
  std::size_t size;
  int blocking;
};
#define NCCL_CONFIG_INITIALIZER {sizeof(ncclConfig_t), INT_MIN}
#define NCCL_WIN_COLL_SYMMETRIC 0x01

char const* ncclGetErrorString(ncclResult_t);
char const* ncclGetLastError(ncclComm_t);
ncclResult_t ncclGetVersion(int*);
ncclResult_t ncclGetUniqueId(ncclUniqueId*);
ncclResult_t ncclCommInitRankConfig(ncclComm_t*, int ranks, ncclUniqueId, int rank, ncclConfig_t*);
ncclResult_t ncclCommFinalize(ncclComm_t);
ncclResult_t ncclCommDestroy(ncclComm_t);
ncclResult_t ncclCommAbort(ncclComm_t);
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t*);
ncclResult_t ncclMemAlloc(void**, std::size_t bytes);
ncclResult_t ncclMemFree(void*);
ncclResult_t ncclCommRegister(ncclComm_t, void*, std::size_t bytes, void** handle);
ncclResult_t ncclCommDeregister(ncclComm_t, void* handle);
#if NCCL_MINOR >= 27
ncclResult_t ncclCommWindowRegister(ncclComm_t, void*, std::size_t bytes, ncclWindow_t*, int flags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t);
#endif
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclBroadcast(void const*, void*, std::size_t count, ncclDataType_t, int root, ncclComm_t, cudaStream_t);
ncclResult_t ncclReduce(void const*, void*, std::size_t count, ncclDataType_t, ncclRedOp_t, int root, ncclComm_t,
                        cudaStream_t);
ncclResult_t ncclAllReduce(void const*, void*, std::size_t count, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                           cudaStream_t);
ncclResult_t ncclReduceScatter(void const*, void*, std::size_t count, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                               cudaStream_t);
ncclResult_t ncclAllGather(void const*, void*, std::size_t count, ncclDataType_t, ncclComm_t, cudaStream_t);
ncclResult_t ncclSend(void const*, std::size_t count, ncclDataType_t, int peer, ncclComm_t, cudaStream_t);
ncclResult_t ncclRecv(void*, std::size_t count, ncclDataType_t, int peer, ncclComm_t, cudaStream_t);

namespace emulated::nccl {

/// What goes wrong, for tests. Counters count from `reset` on.
struct Faults {
  int version = NCCL_VERSION_CODE;  ///< of the library
  bool shares_devices = true;       ///< whether several ranks may be on one device
  int failing_rank = -1;            ///< whose communicator fails, or stalls, or both
  int fails_after = -1;             ///< collectives until ncclCommGetAsyncError says ncclRemoteError; -1: never
  int stalls_after = -1;            ///< collectives until its device never goes on; -1: never
  int absent_rank = -1;             ///< never gets through ncclCommInitRankConfig
  bool stalls_windows = false;      ///< ncclCommWindowRegister never gets through
  int refuses_after = -1;           ///< collectives until ncclAllReduce of that rank returns ncclInternalError
};
struct Counts {
  int communicators = 0;  ///< alive
  int aborted = 0;
  int collectives = 0;    ///< calls of all ranks, sends and receives included
  int registered = 0;     ///< handles alive
  int windows = 0;        ///< alive
  int misuses = 0;        ///< what NCCL forbids; must stay 0
  std::size_t allocated = 0;  ///< blocks of ncclMemAlloc alive
  std::string misuse;         ///< the last one
};
void reset(Faults const& faults = {});
Counts counts();

}  // namespace emulated::nccl
