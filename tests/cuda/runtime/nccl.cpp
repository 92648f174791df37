// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <nccl.h>

#include "streams.hpp"

#include <tutti/core/bfloat16.hpp>
#include <tutti/core/float16.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

namespace emulated::nccl {
namespace {

enum class Kind { broadcast, reduce, all_reduce, reduce_scatter, all_gather, send, recv };

struct Operation {
  Kind kind;
  void const* from;
  void* to;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int peer;  ///< or root
  std::uint64_t number = 0;  ///< among the collectives of the communicator, or the messages of this pair
};

/// What one rank launches at once.
struct Launch {
  std::vector<Operation> operations;
  bool posted = false;
};

/// A collective of all ranks, or a message of two.
struct Meeting {
  std::vector<Operation const*> parts;  ///< of a collective by rank; of a message sender and receiver
  std::size_t posted = 0;
  bool done = false;
};

struct World {
  int size = 0;
  std::vector<ncclComm*> ranks;
  int joined = 0;
  bool shares_device = false;
  std::map<std::uint64_t, Meeting> collectives;
  std::map<std::pair<int, int>, std::map<std::uint64_t, Meeting>> messages;
  std::vector<std::shared_ptr<Launch>> kept;  ///< posted operations stay where the others find them
  int windows = 0;
};

struct State {
  std::mutex mutex;
  Faults faults;
  Counts counts;
  std::uint64_t next_id = 1;
  std::map<std::uint64_t, std::shared_ptr<World>> worlds;
  std::set<void*> windows;  ///< memory of all communicators
};
State& state() {
  static State one;
  return one;
}

/// Looks of ncclCommGetAsyncError during which nothing happens.
constexpr int looks = 2;

}  // namespace
}  // namespace emulated::nccl

using namespace emulated::nccl;

struct ncclComm {
  std::shared_ptr<World> world;
  int rank = 0;
  int device = 0;
  int looks = 0;  ///< until what was called happens
  bool ready = false;
  bool finalized = false;
  std::atomic<bool> aborted{false};
  bool absent = false;
  bool joined = false;
  int calls = 0;
  ncclResult_t error = ncclSuccess;
  std::string text;
  std::uint64_t collectives = 0;
  std::map<std::pair<int, int>, std::uint64_t> messages;
  std::vector<std::pair<cudaStream_t, std::shared_ptr<Launch>>> pending;
  std::vector<void*> windows;  ///< memory that it knows
  int registered = 0;          ///< blocks, likewise
};

namespace emulated::nccl {
namespace {

ncclResult_t misuse(std::string text, ncclResult_t code = ncclInvalidUsage) {
  ++state().counts.misuses;
  state().counts.misuse = std::move(text);
  return code;
}

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8: case ncclUint8: return 1;
    case ncclFloat16: case ncclBfloat16: return 2;
    case ncclInt32: case ncclUint32: case ncclFloat32: return 4;
    default: return 8;
  }
}

/// As a ring does it: rounded at every step, from the rank behind `first` on; averages multiply beforehand.
template <class T>
void reduce(std::vector<void const*> const& inputs, std::size_t first, void* to, std::size_t count, ncclRedOp_t op) {
  using A = std::conditional_t<std::is_same_v<T, tutti::bfloat16> || std::is_same_v<T, tutti::float16>, float, T>;
  auto const ranks = inputs.size();
  std::vector<T> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    auto const input = [&](std::size_t step) {
      auto const value = static_cast<A>(static_cast<T const*>(inputs[(first + step) % ranks])[i]);
      if constexpr (std::is_integral_v<A>) return value;
      else return op == ncclAvg ? static_cast<A>(static_cast<T>(value * (A{1} / static_cast<A>(ranks)))) : value;
    };
    T sum = static_cast<T>(input(0));
    for (std::size_t step = 1; step < ranks; ++step) {
      A const x = static_cast<A>(sum), y = input(step);
      if constexpr (std::is_integral_v<A>) {
        using U = std::make_unsigned_t<A>;
        sum = op == ncclProd  ? static_cast<T>(static_cast<U>(std::uint64_t(U(x)) * U(y)))
              : op == ncclMax ? std::max(x, y)
              : op == ncclMin ? std::min(x, y)
                              : static_cast<T>(static_cast<U>(static_cast<U>(x) + static_cast<U>(y)));
      } else {
        sum = static_cast<T>(op == ncclProd  ? x * y
                             : op == ncclMax ? (x < y ? y : x)
                             : op == ncclMin ? (y < x ? y : x)
                                             : x + y);
      }
    }
    result[i] = sum;
  }
  if (count != 0) std::memcpy(to, result.data(), count * sizeof(T));
}
void reduce(ncclDataType_t type, std::vector<void const*> const& inputs, std::size_t first, void* to,
            std::size_t count, ncclRedOp_t op) {
  switch (type) {
    case ncclInt8: return reduce<std::int8_t>(inputs, first, to, count, op);
    case ncclUint8: return reduce<std::uint8_t>(inputs, first, to, count, op);
    case ncclInt32: return reduce<std::int32_t>(inputs, first, to, count, op);
    case ncclUint32: return reduce<std::uint32_t>(inputs, first, to, count, op);
    case ncclInt64: return reduce<std::int64_t>(inputs, first, to, count, op);
    case ncclUint64: return reduce<std::uint64_t>(inputs, first, to, count, op);
    case ncclFloat16: return reduce<tutti::float16>(inputs, first, to, count, op);
    case ncclBfloat16: return reduce<tutti::bfloat16>(inputs, first, to, count, op);
    case ncclFloat32: return reduce<float>(inputs, first, to, count, op);
    case ncclFloat64: return reduce<double>(inputs, first, to, count, op);
  }
}

/// The contributions as they were, because results may be written over them.
std::vector<std::vector<char>> taken(Meeting const& meeting, std::size_t bytes) {
  std::vector<std::vector<char>> copies;
  for (Operation const* part : meeting.parts) {
    auto const* const from = static_cast<char const*>(part->from);
    copies.emplace_back(bytes == 0 || from == nullptr ? std::vector<char>() : std::vector<char>(from, from + bytes));
  }
  return copies;
}

void carry_out(World const& world, Meeting& meeting) {
  Operation const& first = *meeting.parts.front();
  std::size_t const bytes = first.count * size_of(first.type);
  auto const ranks = static_cast<std::size_t>(world.size);
  auto const put = [](void* to, void const* from, std::size_t size) {
    if (size != 0 && to != from) std::memmove(to, from, size);
  };
  meeting.done = true;
  if (first.kind == Kind::send) return put(meeting.parts[1]->to, first.from, bytes);
  if (first.kind == Kind::broadcast) {
    auto const root = static_cast<std::size_t>(first.peer);
    auto const data = taken(meeting, bytes);
    for (Operation const* part : meeting.parts) put(part->to, data[root].data(), bytes);
    return;
  }
  bool const scatters = first.kind == Kind::reduce_scatter;
  auto const data = taken(meeting, scatters ? bytes * ranks : bytes);
  if (first.kind == Kind::all_gather) {
    for (Operation const* part : meeting.parts)
      for (std::size_t r = 0; r < ranks; ++r) put(static_cast<char*>(part->to) + r * bytes, data[r].data(), bytes);
    return;
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    if (first.kind == Kind::reduce && static_cast<int>(r) != first.peer) continue;
    std::vector<void const*> inputs;
    for (auto const& one : data) inputs.push_back(one.data() + (scatters ? r * bytes : 0));
    reduce(first.type, inputs, scatters ? r + 1 : 1, meeting.parts[r]->to, first.count, first.op);
  }
}

Meeting& meeting_of(ncclComm& comm, Operation const& operation) {
  World& world = *comm.world;
  bool const sends = operation.kind == Kind::send;
  Meeting& meeting = sends || operation.kind == Kind::recv
                         ? world.messages[sends ? std::pair(comm.rank, operation.peer)
                                                : std::pair(operation.peer, comm.rank)][operation.number]
                         : world.collectives[operation.number];
  return meeting;
}
bool agrees(Operation const& a, Operation const& b) {
  bool const message = a.kind == Kind::send || a.kind == Kind::recv;
  return a.count == b.count && a.type == b.type && (message || (a.kind == b.kind && a.op == b.op && a.peer == b.peer));
}
void post(ncclComm& comm, std::shared_ptr<Launch> const& launch) {
  World& world = *comm.world;
  launch->posted = true;
  world.kept.push_back(launch);
  for (Operation const& operation : launch->operations) {
    Meeting& meeting = meeting_of(comm, operation);
    bool const message = operation.kind == Kind::send || operation.kind == Kind::recv;
    meeting.parts.resize(message ? 2 : static_cast<std::size_t>(world.size));
    meeting.parts[message ? (operation.kind == Kind::send ? 0 : 1) : static_cast<std::size_t>(comm.rank)] = &operation;
    ++meeting.posted;
  }
}
/// Whether everybody has come to all of it.
bool is_complete(ncclComm& comm, Launch const& launch) {
  for (Operation const& operation : launch.operations) {
    Meeting const& meeting = meeting_of(comm, operation);
    if (meeting.done) continue;
    // What a rank has posted and then aborted no longer comes.
    for (ncclComm const* other : comm.world->ranks)
      if (other == nullptr) return false;
    if (meeting.posted != meeting.parts.size()) return false;
    for (Operation const* part : meeting.parts)
      if (!agrees(*part, operation)) {
        if (comm.text.empty()) misuse(comm.text = "ranks call NCCL with different counts, types, operators or roots");
        return false;
      }
  }
  return true;
}

/// Its operations among those of the communicator, in the order in which streams get them, or graphs are launched.
void number(ncclComm& comm, Launch& launch) {
  for (Operation& operation : launch.operations) {
    bool const sends = operation.kind == Kind::send;
    if (sends || operation.kind == Kind::recv)
      operation.number = comm.messages[sends ? std::pair(comm.rank, operation.peer)
                                             : std::pair(operation.peer, comm.rank)]++;
    else operation.number = comm.collectives++;
  }
}
Deferred deferred(std::shared_ptr<World> const& world, std::size_t rank, std::shared_ptr<Launch> const& launch,
                  int calls) {
  auto const ready = [world, rank, launch, calls] {
    std::lock_guard const lock(state().mutex);
    ncclComm* const self = world->ranks[rank];
    if (self == nullptr || self->aborted) return true;
    Faults const& faults = state().faults;
    if (faults.failing_rank == self->rank && faults.stalls_after >= 0 && calls > faults.stalls_after) return false;
    if (!launch->posted) post(*self, launch);
    return is_complete(*self, *launch);
  };
  auto const run = [world, rank, launch] {
    std::lock_guard const lock(state().mutex);
    ncclComm* const self = world->ranks[rank];
    if (self == nullptr || self->aborted) return;
    for (Operation const& operation : launch->operations)
      if (Meeting& meeting = meeting_of(*self, operation); !meeting.done) carry_out(*world, meeting);
  };
  return {ready, run};
}
void put_on_stream(ncclComm* comm, cudaStream_t stream, std::shared_ptr<Launch> launch) {
  // The communicator may be gone, aborted, before the stream comes to this.
  auto const world = comm->world;
  auto const rank = static_cast<std::size_t>(comm->rank);
  enqueue_when(stream, [world, rank, launch] {
    auto const made = std::make_shared<Launch>(*launch);
    int calls = 0;
    {
      std::lock_guard const lock(state().mutex);
      if (ncclComm* const self = world->ranks[rank]; self != nullptr) {
        number(*self, *made);
        calls = ++self->calls;
      }
    }
    return deferred(world, rank, made, calls);
  });
}

/// What was called earlier and has not happened yet; NCCL wants to be asked first.
ncclResult_t begin(ncclComm* comm, char const* call) {
  if (comm == nullptr) return misuse(std::string(call) + " without a communicator", ncclInvalidArgument);
  if (comm->aborted) return misuse(std::string(call) + " on a communicator that was aborted");
  if (comm->looks > 0 || !comm->ready) return misuse(std::string(call) + " before the last call was through");
  if (comm->finalized) return misuse(std::string(call) + " on a communicator that was finalized");
  return comm->error;
}

thread_local int depth = 0;
thread_local std::vector<std::tuple<ncclComm*, cudaStream_t, Operation>> grouped;

ncclResult_t launch_group() {
  std::map<std::pair<ncclComm*, cudaStream_t>, std::shared_ptr<Launch>> launches;
  std::lock_guard const lock(state().mutex);
  for (auto& [comm, stream, operation] : grouped) {
    auto& launch = launches[{comm, stream}];
    if (launch == nullptr) launch = std::make_shared<Launch>();
    launch->operations.push_back(operation);
    ++state().counts.collectives;
  }
  grouped.clear();
  for (auto& [where, launch] : launches) {
    where.first->pending.push_back({where.second, launch});
    where.first->looks = looks;
  }
  return launches.empty() ? ncclSuccess : ncclInProgress;
}

ncclResult_t add(ncclComm_t comm, cudaStream_t stream, Operation const& operation, char const* call) {
  {
    std::lock_guard const lock(state().mutex);
    if (ncclResult_t const code = begin(comm, call); code != ncclSuccess) return code;
    if (operation.peer < -1 || operation.peer >= comm->world->size)
      return misuse(std::string(call) + " with a rank that does not exist", ncclInvalidArgument);
    Faults const& faults = state().faults;
    if (operation.kind == Kind::all_reduce && faults.failing_rank == comm->rank && faults.refuses_after >= 0 &&
        comm->calls >= faults.refuses_after) {
      comm->text = "the emulation was told to";
      return ncclInternalError;
    }
  }
  grouped.push_back({comm, stream, operation});
  return depth > 0 ? ncclSuccess : launch_group();
}

}  // namespace
void reset(Faults const& faults) {
  std::lock_guard const lock(state().mutex);
  state().faults = faults;
  state().counts.aborted = state().counts.collectives = state().counts.misuses = 0;
  state().counts.misuse.clear();
}
Counts counts() {
  std::lock_guard const lock(state().mutex);
  return state().counts;
}

}  // namespace emulated::nccl

char const* ncclGetErrorString(ncclResult_t code) {
  switch (code) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
  }
  return "unknown result code";
}
char const* ncclGetLastError(ncclComm_t comm) {
  std::lock_guard const lock(state().mutex);
  return comm == nullptr ? "" : comm->text.c_str();
}
ncclResult_t ncclGetVersion(int* version) {
  std::lock_guard const lock(state().mutex);
  *version = state().faults.version;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::lock_guard const lock(state().mutex);
  std::memset(id, 0, sizeof *id);
  std::uint64_t const number = state().next_id++;
  std::memcpy(id->internal, &number, sizeof number);
  state().worlds[number] = std::make_shared<World>();
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  std::lock_guard const lock(state().mutex);
  std::uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof number);
  auto const found = state().worlds.find(number);
  if (found == state().worlds.end() || rank < 0 || rank >= ranks || config->blocking != 0)
    return misuse("ncclCommInitRankConfig with an unknown id or rank, or blocking", ncclInvalidArgument);
  auto const world = found->second;
  world->size = ranks;
  world->ranks.resize(static_cast<std::size_t>(ranks));
  auto* const made = new ncclComm;
  made->world = world;
  made->rank = rank;
  made->looks = looks;
  made->absent = state().faults.absent_rank == rank;
  cudaGetDevice(&made->device);
  for (ncclComm const* other : world->ranks) world->shares_device |= other != nullptr && other->device == made->device;
  world->ranks[static_cast<std::size_t>(rank)] = made;
  ++state().counts.communicators;
  *comm = made;
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  std::vector<std::pair<cudaStream_t, std::shared_ptr<Launch>>> pending;
  {
    std::lock_guard const lock(state().mutex);
    World& world = *comm->world;
    Faults const& faults = state().faults;
    if (comm->error == ncclSuccess && faults.failing_rank == comm->rank && faults.fails_after >= 0 &&
        comm->calls >= faults.fails_after) {
      comm->error = ncclRemoteError;
      comm->text = "connection closed by remote peer";
    }
    if (!comm->joined && !comm->absent) {
      comm->joined = true;
      ++world.joined;
    }
    if (!comm->ready && comm->joined && world.joined == world.size) {
      if (world.shares_device && !faults.shares_devices) {
        comm->error = ncclInvalidUsage;
        comm->text = "Duplicate GPU detected";
      }
      comm->ready = comm->error == ncclSuccess;
    }
    *error = comm->error;
    if (comm->error != ncclSuccess) return ncclSuccess;
    *error = ncclInProgress;
    if (!comm->ready || --comm->looks > 0) return ncclSuccess;
    comm->looks = 0;
    *error = ncclSuccess;
    pending.swap(comm->pending);
  }
  for (auto& [stream, launch] : pending) put_on_stream(comm, stream, launch);
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  std::lock_guard const lock(state().mutex);
  if (ncclResult_t const code = begin(comm, "ncclCommFinalize"); code != ncclSuccess) return code;
  comm->finalized = true;
  comm->looks = looks;
  return ncclInProgress;
}
namespace {
ncclResult_t remove(ncclComm_t comm) {
  auto& ranks = comm->world->ranks;
  std::replace(ranks.begin(), ranks.end(), comm, static_cast<ncclComm*>(nullptr));
  state().counts.windows -= static_cast<int>(comm->windows.size());
  for (void* const memory : comm->windows) state().windows.erase(memory);
  --state().counts.communicators;
  delete comm;
  return ncclSuccess;
}
}  // namespace
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  std::lock_guard const lock(state().mutex);
  if (!comm->finalized || comm->looks > 0) misuse("ncclCommDestroy before ncclCommFinalize was through");
  return remove(comm);
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  std::lock_guard const lock(state().mutex);
  if (comm == nullptr) return misuse("ncclCommAbort without a communicator", ncclInvalidArgument);
  ++state().counts.aborted;
  state().counts.registered -= comm->registered;  // what it knew goes with it
  return remove(comm);
}

ncclResult_t ncclMemAlloc(void** memory, std::size_t bytes) {
  if (cudaMalloc(memory, bytes) != cudaSuccess) return ncclUnhandledCudaError;
  std::lock_guard const lock(state().mutex);
  ++state().counts.allocated;
  return ncclSuccess;
}
ncclResult_t ncclMemFree(void* memory) {
  {
    std::lock_guard const lock(state().mutex);
    --state().counts.allocated;
    if (state().windows.contains(memory)) misuse("ncclMemFree of memory that is part of a window");
  }
  return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclCommRegister(ncclComm_t comm, void* memory, std::size_t, void** handle) {
  std::lock_guard const lock(state().mutex);
  if (ncclResult_t const code = begin(comm, "ncclCommRegister"); code != ncclSuccess) return code;
  ++state().counts.registered;
  ++comm->registered;
  *handle = memory;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(ncclComm_t comm, void*) {
  std::lock_guard const lock(state().mutex);
  --state().counts.registered;
  --comm->registered;
  return ncclSuccess;
}
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* memory, std::size_t, ncclWindow_t* window, int flags) {
  std::lock_guard const lock(state().mutex);
  if (ncclResult_t const code = begin(comm, "ncclCommWindowRegister"); code != ncclSuccess) return code;
  if (flags != NCCL_WIN_COLL_SYMMETRIC) return ncclInvalidArgument;
  ++state().counts.windows;
  comm->looks = state().faults.stalls_windows ? 1 << 30 : looks;
  comm->windows.push_back(memory);
  state().windows.insert(memory);
  *window = reinterpret_cast<ncclWindow_t>(memory);
  return ncclInProgress;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  std::lock_guard const lock(state().mutex);
  state().windows.erase(window);
  std::erase(comm->windows, static_cast<void*>(window));
  --state().counts.windows;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() { return --depth > 0 ? ncclSuccess : launch_group(); }
ncclResult_t ncclBroadcast(void const* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {Kind::broadcast, from, to, count, type, ncclSum, root}, "ncclBroadcast");
}
ncclResult_t ncclReduce(void const* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {Kind::reduce, from, to, count, type, op, root}, "ncclReduce");
}
ncclResult_t ncclAllReduce(void const* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {Kind::all_reduce, from, to, count, type, op, -1}, "ncclAllReduce");
}
ncclResult_t ncclReduceScatter(void const* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, {Kind::reduce_scatter, from, to, count, type, op, -1}, "ncclReduceScatter");
}
ncclResult_t ncclAllGather(void const* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return add(comm, stream, {Kind::all_gather, from, to, count, type, ncclSum, -1}, "ncclAllGather");
}
ncclResult_t ncclSend(void const* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add(comm, stream, {Kind::send, from, nullptr, count, type, ncclSum, peer}, "ncclSend");
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add(comm, stream, {Kind::recv, nullptr, to, count, type, ncclSum, peer}, "ncclRecv");
}
