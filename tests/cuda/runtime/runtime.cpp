// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "emulated/runtime.hpp"

#include "emulated/block.hpp"
#include "grid.hpp"
#include "memory.hpp"
#include "streams.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <source_location>
#include <string>
#include <thread>
#include <vector>

namespace emulated {
namespace {

// ---- Work ----

/// A piece of work; it returns why it failed, or nothing.
using Run = std::function<std::string()>;
struct Work {
  Run run;
  std::function<void()> on_launch{};  ///< of captured work, when its graph is launched
  std::function<bool()> ready{};      ///< what waits for other streams: whether it may begin
  bool all_devices = false;           ///< whether it touches the memory of all of them
  std::function<bool()> is_done{};    ///< of work that goes on as far as it can: whether it has come to its end
};

/// Work captured from streams; `before[n]` are the pieces that must be done before piece n.
struct Captured {
  std::vector<Work> work;
  std::vector<std::vector<std::size_t>> before;
};

struct Capture {
  Captured captured;
  CUstream_st* origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  std::map<CUstream_st*, std::vector<std::size_t>> last;  ///< what the next piece of a stream waits for
  bool invalid = false;
};

/// One recording of an event.
struct Mark {
  CUstream_st* stream = nullptr;
  bool done = false;
  std::chrono::steady_clock::time_point time;
  std::shared_ptr<Capture> capture;
  std::vector<std::size_t> last;
};

}  // namespace
}  // namespace emulated

struct CUstream_st {
  int device;
  std::deque<emulated::Work> work;
  std::shared_ptr<emulated::Capture> capture;
};
struct CUevent_st {
  int device;
  unsigned flags;
  std::shared_ptr<emulated::Mark> mark;
};
struct CUgraph_st {
  std::shared_ptr<emulated::Captured> captured;
};
struct CUgraphExec_st {
  int device;
  std::shared_ptr<emulated::Captured> captured;
};
struct CUmemPoolHandle_st {
  int device;
};

namespace emulated {
namespace {

/// The thread that plays the devices. Everything that touches their memory runs here, one piece at a time.
class DeviceThread {
 public:
  DeviceThread() : thread_([this] { loop(); }) {}
  ~DeviceThread() {
    {
      std::lock_guard const lock(mutex_);
      stop_ = true;
    }
    change_.notify_all();
    thread_.join();
  }
  void run(std::function<void()> const& task) {
    std::unique_lock lock(mutex_);
    task_ = &task;
    change_.notify_all();
    change_.wait(lock, [this] { return task_ == nullptr; });
  }
  bool is_this() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      change_.wait(lock, [this] { return task_ != nullptr || stop_; });
      if (stop_) return;
      auto const* task = task_;
      lock.unlock();
      (*task)();
      lock.lock();
      task_ = nullptr;
      change_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable change_;
  std::function<void()> const* task_ = nullptr;
  bool stop_ = false;
  std::thread thread_;
};

struct DeviceState {
  Arena memory;
  cudaError_t error = cudaSuccess;
  CUmemPoolHandle_st pool{0};
  std::uint64_t release_threshold = 0;
};

constexpr int device_count = 2;
constexpr std::size_t default_shared = std::size_t{48} << 10;
constexpr std::size_t largest_shared = std::size_t{227} << 10;

struct Runtime {
  std::recursive_mutex mutex;
  DeviceState devices[device_count];
  std::set<CUstream_st*> streams;
  std::map<std::pair<std::thread::id, int>, CUstream_st*> own_streams;
  std::set<CUevent_st*> events;
  std::set<CUgraph_st*> graphs;
  std::set<CUgraphExec_st*> executables;
  std::set<std::shared_ptr<Capture>> captures;
  std::map<char*, std::pair<std::size_t, bool>> pinned;  ///< begin to bytes, and whether it is memory of CUDA's own
  std::multiset<std::pair<char const*, std::size_t>> host_reads;  ///< begin and bytes, of copies not yet done
  std::map<void const*, int> dynamic_shared;
  Dice dice;
  std::string diagnosis;
  DeviceThread thread;

  Runtime() {
    for (int device = 0; device < device_count; ++device) devices[device].pool.device = device;
    char const* seed = std::getenv("TUTTI_CUDA_SEED");
    dice.seed(seed != nullptr ? std::strtoull(seed, nullptr, 10) : 1);
  }
  ~Runtime() {
    for (auto const& own : own_streams) delete own.second;
  }
};

Runtime& runtime() {
  static Runtime one;
  return one;
}

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t note(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

/// Does `count` pieces of a stream's work, on the thread of the device.
void advance_here(CUstream_st* stream, std::size_t count) {
  auto& r = runtime();
  auto& device = r.devices[stream->device];
  for (; count > 0 && !stream->work.empty(); --count) {
    if (auto const ready = stream->work.front().ready; ready && !ready()) return;
    Work work = std::move(stream->work.front());
    stream->work.pop_front();
    device.memory.open();
    for (auto& other : r.devices)
      if (work.all_devices) other.memory.open();
    std::string failure = work.run();
    for (auto& other : r.devices)
      if (work.all_devices) other.memory.close();
    if (device.error == cudaSuccess && failure.empty()) failure = device.memory.damage();
    device.memory.close();
    if (!failure.empty() && device.error == cudaSuccess) {
      device.error = cudaErrorLaunchFailure;
      r.diagnosis = std::move(failure);
      std::fprintf(stderr, "CUDA, emulated: %s\n", r.diagnosis.c_str());
    }
    if (work.is_done && device.error == cudaSuccess && !work.is_done()) {
      stream->work.push_front(std::move(work));
      return;
    }
  }
}
void advance(CUstream_st* stream, std::size_t count = ~std::size_t{0}) {
  auto& r = runtime();
  if (stream->work.empty()) return;
  if (r.thread.is_this()) advance_here(stream, count);
  else r.thread.run([&] { advance_here(stream, count); });
}
/// False when something else must happen first.
bool advance_until(Mark const& mark) {
  while (!mark.done && !mark.stream->work.empty()) {
    std::size_t const before = mark.stream->work.size();
    advance(mark.stream, 1);
    if (!mark.done && mark.stream->work.size() == before) return false;
  }
  return true;
}
/// Blocks until `done` says so, which is asked again when other threads may have moved things on.
template <class Done>
void block(std::unique_lock<std::recursive_mutex>& lock, Done const& done) {
  while (!done()) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    lock.lock();
  }
}

/// Under a seed, some work is done before anybody waits for it.
void advance_by_chance() {
  auto& r = runtime();
  if (r.dice.idle() || r.dice.below(4) != 0) return;
  std::vector<CUstream_st*> busy;
  for (CUstream_st* stream : r.streams)
    if (!stream->work.empty()) busy.push_back(stream);
  // Sets of pointers are in another order in every run; the seed alone decides.
  std::sort(busy.begin(), busy.end(), [](auto* a, auto* b) { return a->work.size() < b->work.size(); });
  if (!busy.empty()) advance(busy[r.dice.below(static_cast<unsigned>(busy.size()))], 1 + r.dice.below(3));
}

void capture_work(CUstream_st* stream, Work work) {
  Capture& capture = *stream->capture;
  std::size_t const index = capture.captured.work.size();
  capture.captured.work.push_back(std::move(work));
  capture.captured.before.push_back(capture.last[stream]);
  capture.last[stream] = {index};
}
cudaError_t enqueue(CUstream_st* stream, Run run, std::function<void()> on_launch = {}) {
  if (stream->capture) {
    capture_work(stream, {std::move(run), std::move(on_launch)});
    return cudaSuccess;
  }
  if (on_launch) on_launch();
  auto const device = stream->device;
  stream->work.push_back({[device, run = std::move(run)] {
    return runtime().devices[device].error == cudaSuccess ? run() : std::string();
  }});
  advance_by_chance();
  return runtime().devices[device].error;
}

/// A run of captured work: pieces in an order that keeps what comes before what, drawn from the seed. Some wait for
/// other streams; then the others go on.
class Replay {
 public:
  Replay(std::shared_ptr<Captured const> captured, int device) : captured_(std::move(captured)), device_(device) {
    auto const& before = captured_->before;
    missing_.resize(before.size());
    after_.resize(before.size());
    for (std::size_t index = 0; index < before.size(); ++index) {
      missing_[index] = before[index].size();
      for (std::size_t const one : before[index]) after_[one].push_back(index);
      if (missing_[index] == 0) open_.push_back(index);
    }
  }
  bool is_done() const { return open_.empty(); }
  /// As far as it can; what went wrong ends it.
  std::string go_on() {
    auto& r = runtime();
    for (;;) {
      std::vector<std::size_t> ready;
      for (std::size_t place = 0; place < open_.size(); ++place)
        if (auto const& piece = captured_->work[open_[place]]; !piece.ready || piece.ready()) ready.push_back(place);
      if (ready.empty()) return {};
      std::size_t const pick = ready[r.dice.idle() ? 0 : r.dice.below(static_cast<unsigned>(ready.size()))];
      std::size_t const index = open_[pick];
      open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(pick));
      if (std::string failure = run(captured_->work[index]); !failure.empty()) return failure;
      for (std::size_t const next : after_[index])
        if (--missing_[next] == 0) open_.push_back(next);
    }
  }

 private:
  std::string run(Work const& piece) const {
    auto& devices = runtime().devices;
    for (int other = 0; other < device_count; ++other)
      if (piece.all_devices && other != device_) devices[other].memory.open();
    std::string failure = piece.run();
    for (int other = 0; other < device_count; ++other)
      if (piece.all_devices && other != device_) devices[other].memory.close();
    return failure;
  }

  std::shared_ptr<Captured const> captured_;
  int device_;
  std::vector<std::size_t> missing_;
  std::vector<std::vector<std::size_t>> after_;
  std::vector<std::size_t> open_;  // that nothing captured comes before any more
};

/// Whether this thread may not make calls that a capture forbids.
bool capture_forbids() {
  for (auto const& capture : runtime().captures)
    if (capture->mode == cudaStreamCaptureModeGlobal ||
        (capture->mode == cudaStreamCaptureModeThreadLocal && capture->thread == std::this_thread::get_id())) {
      capture->invalid = true;
      return true;
    }
  return false;
}

/// The device that has this address, or -1 for the host.
int side_of(void const* at) {
  for (int device = 0; device < device_count; ++device)
    if (runtime().devices[device].memory.contains(at)) return device;
  return -1;
}
bool is_pinned(void const* at, std::size_t bytes) {
  auto& pinned = runtime().pinned;
  auto* const address = static_cast<char*>(const_cast<void*>(at));
  auto found = pinned.upper_bound(address);
  if (found == pinned.begin()) return false;
  --found;
  return address + bytes <= found->first + found->second.first;
}

/// Whether it is a stream; a thread's own becomes the stream that stands for it on the current device.
bool known(CUstream_st*& stream) {
  auto& r = runtime();
  if (stream == cudaStreamPerThread) {
    auto& own = r.own_streams[{std::this_thread::get_id(), current_device}];
    if (own == nullptr) {
      own = new CUstream_st{current_device, {}, {}};
      r.streams.insert(own);
    }
    stream = own;
  }
  return r.streams.count(stream) != 0;
}

}  // namespace

char const* diagnosis() { return runtime().diagnosis.c_str(); }
void set_seed(unsigned long long seed) {
  std::lock_guard const lock(runtime().mutex);
  runtime().dice.seed(seed);
}
std::size_t work_waiting() {
  std::lock_guard const lock(runtime().mutex);
  std::size_t all = 0;
  for (CUstream_st* stream : runtime().streams) all += stream->work.size();
  return all;
}

cudaError_t set_attribute(void const* kernel, cudaFuncAttribute attribute, int value) {
  auto& r = runtime();
  std::lock_guard const lock(r.mutex);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;  // a hint
  if (value < 0 || static_cast<std::size_t>(value) > largest_shared) return note(cudaErrorInvalidValue);
  r.dynamic_shared[kernel] = value;
  return cudaSuccess;
}
cudaError_t blocks_per_processor(int* blocks, void const*, int threads, std::size_t shared_bytes) {
  int const by_shared = static_cast<int>((largest_shared + 1024) / (shared_bytes + 1024));
  *blocks = std::min({2048 / std::max(threads, 1), by_shared, 32});
  return cudaSuccess;
}

cudaError_t launch(cudaLaunchConfig_t config, void const* kernel, std::function<void()> body) {
  auto& r = runtime();
  std::lock_guard const lock(r.mutex);
  if (!known(config.stream)) return note(cudaErrorInvalidResourceHandle);
  if (config.stream->device != current_device) return note(cudaErrorInvalidResourceHandle);
  auto& device = r.devices[config.stream->device];
  if (device.error != cudaSuccess) return note(device.error);
  dim3 const grid = config.gridDim, block = config.blockDim;
  std::size_t const threads = std::size_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.z > 64 || grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 ||
      grid.z > 65535 || grid.x > 0x7fffffffu)
    return note(cudaErrorInvalidConfiguration);
  auto const allowed = r.dynamic_shared.find(kernel);
  if (config.dynamicSmemBytes > default_shared &&
      (allowed == r.dynamic_shared.end() || config.dynamicSmemBytes > static_cast<std::size_t>(allowed->second)))
    return note(cudaErrorInvalidValue);
  for (unsigned index = 0; index < config.numAttrs; ++index) {
    auto const& attribute = config.attrs[index];
    if (attribute.id == cudaLaunchAttributeClusterDimension &&
        attribute.val.clusterDim.x * attribute.val.clusterDim.y * attribute.val.clusterDim.z != 1)
      return note(cudaErrorNotSupported);  // blocks run one after another
    if (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization &&
        attribute.val.programmaticStreamSerializationAllowed != 0)
      body = [body = std::move(body)] {
        body();
        if (!has_waited_for_previous())
          fail("a kernel that may overlap with the one before it did not wait for it", std::source_location::current());
      };
  }
  Grid const description{grid, block, config.dynamicSmemBytes, std::move(body)};
  return note(enqueue(config.stream, [description] { return run_grid(description, runtime().dice); }));
}

}  // namespace emulated

using namespace emulated;

// ---- Errors ----

namespace emulated {
namespace {
bool code_held = true;
}
void hold_code(bool held) { code_held = held; }
bool code_is_held() { return code_held; }
}  // namespace emulated

char const* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidMemcpyDirection: return "cudaErrorInvalidMemcpyDirection";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorHostMemoryAlreadyRegistered: return "cudaErrorHostMemoryAlreadyRegistered";
    case cudaErrorHostMemoryNotRegistered: return "cudaErrorHostMemoryNotRegistered";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorInvalidDeviceFunction: return "cudaErrorInvalidDeviceFunction";
    case cudaErrorNoKernelImageForDevice: return "cudaErrorNoKernelImageForDevice";
    case cudaErrorUnsupportedPtxVersion: return "cudaErrorUnsupportedPtxVersion";
    case cudaErrorNotSupported: return "cudaErrorNotSupported";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureUnjoined: return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorStreamCaptureIsolation: return "cudaErrorStreamCaptureIsolation";
  }
  return "unrecognized error code";
}
char const* cudaGetErrorString(cudaError_t error) {
  if (error == cudaErrorLaunchFailure) return runtime().diagnosis.c_str();
  if (error == cudaErrorMemoryAllocation) return "out of memory";
  if (error == cudaErrorInvalidDevice) return "invalid device ordinal";
  return cudaGetErrorName(error);
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }

// ---- Devices ----

cudaError_t cudaGetDeviceCount(int* count) {
  char const* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr && *visible == '\0') return note(cudaErrorNoDevice);
  *count = device_count;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= device_count) return note(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= device_count) return note(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = default_shared; break;
    case cudaDevAttrMultiProcessorCount: *value = 3; break;
    case cudaDevAttrL2CacheSize: *value = 1 << 20; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = static_cast<int>(largest_shared + 1024); break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(largest_shared); break;
    case cudaDevAttrMemoryPoolsSupported: *value = 1; break;
    default: return note(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= device_count) return note(cudaErrorInvalidDevice);
  *properties = {"emulated device", Arena::capacity, 9, 0, 3};
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  auto& r = runtime();
  std::lock_guard const lock(r.mutex);
  if (capture_forbids()) return note(cudaErrorStreamCaptureUnsupported);
  for (CUstream_st* stream : r.streams)
    if (stream->device == current_device) advance(stream);
  return note(r.devices[current_device].error);
}
cudaError_t cudaDeviceReset() {
  auto& r = runtime();
  std::lock_guard const lock(r.mutex);
  for (CUstream_st* stream : r.streams)
    if (stream->device == current_device) advance(stream);  // failed devices only set marks
  r.devices[current_device].error = cudaSuccess;
  r.host_reads.clear();
  r.diagnosis.clear();
  last_error = cudaSuccess;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  std::lock_guard const lock(runtime().mutex);
  *total = Arena::capacity;
  *free = Arena::capacity - runtime().devices[current_device].memory.used();
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 0;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 0;
  return cudaSuccess;
}

// ---- Streams and events ----

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  std::lock_guard const lock(runtime().mutex);
  // Others wait for the default stream and it for them, which hides what is missing.
  if (flags != cudaStreamNonBlocking) return note(cudaErrorNotSupported);
  *stream = new CUstream_st{current_device, {}, {}};
  runtime().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::lock_guard const lock(runtime().mutex);
  if (!known(stream)) return note(cudaErrorInvalidResourceHandle);
  advance(stream);
  runtime().streams.erase(stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  std::unique_lock lock(runtime().mutex);
  if (!known(stream)) return note(cudaErrorInvalidResourceHandle);
  if (stream->capture) {
    stream->capture->invalid = true;
    return note(cudaErrorStreamCaptureUnsupported);
  }
  block(lock, [stream] {
    advance(stream);
    return stream->work.empty();
  });
  return note(runtime().devices[stream->device].error);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  std::lock_guard const lock(runtime().mutex);
  if (!known(stream)) return note(cudaErrorInvalidResourceHandle);
  if (stream->capture) {
    stream->capture->invalid = true;
    return note(cudaErrorStreamCaptureUnsupported);
  }
  if (stream->work.empty()) return note(runtime().devices[stream->device].error);
  advance(stream, 1);  // so that a loop around this call ends
  return cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  auto& r = runtime();
  std::lock_guard const lock(r.mutex);
  if (!known(stream) || r.events.count(event) == 0) return note(cudaErrorInvalidResourceHandle);
  auto const mark = event->mark;
  if (!mark) return cudaSuccess;
  if (mark->capture) {
    auto const& capture = mark->capture;
    if (r.captures.count(capture) == 0) return note(cudaErrorInvalidValue);  // it ended
    if (stream->capture && stream->capture != capture) return note(cudaErrorStreamCaptureIsolation);
    stream->capture = capture;
    auto& last = capture->last[stream];
    last.insert(last.end(), mark->last.begin(), mark->last.end());
    std::sort(last.begin(), last.end());
    last.erase(std::unique(last.begin(), last.end()), last.end());
    return cudaSuccess;
  }
  if (stream->capture) {
    stream->capture->invalid = true;
    return note(cudaErrorStreamCaptureIsolation);
  }
  stream->work.push_back({.run = [] { return std::string(); }, .ready = [mark] { return advance_until(*mark); }});
  advance_by_chance();
  return cudaSuccess;
}
cudaError_t emulated::enqueue_when(cudaStream_t stream, std::function<Deferred()> make) {
  std::lock_guard const lock(runtime().mutex);
  if (!known(stream)) return note(cudaErrorInvalidResourceHandle);
  auto const device = stream->device;
  // Runs of one graph come one after another, so the oldest is the one that runs.
  auto const waiting = std::make_shared<std::deque<Deferred>>();
  Work work{.run = [device, waiting] {
              Deferred const one = std::move(waiting->front());
              waiting->pop_front();
              if (runtime().devices[device].error == cudaSuccess) one.run();
              return std::string();
            },
            .on_launch = [waiting, make = std::move(make)] { waiting->push_back(make()); },
            .ready = [waiting] { return waiting->front().ready(); },
            .all_devices = true};
  if (stream->capture) {
    capture_work(stream, std::move(work));
  } else {
    work.on_launch();
    stream->work.push_back(std::move(work));
  }
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void*), void* data) {
  std::lock_guard const lock(runtime().mutex);
  if (!known(stream)) return note(cudaErrorInvalidResourceHandle);
  return note(enqueue(stream, [function, data] {
    function(data);
    return std::string();
  }));
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  std::lock_guard const lock(runtime().mutex);
  *event = new CUevent_st{current_device, flags, {}};
  runtime().events.insert(*event);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  std::lock_guard const lock(runtime().mutex);
  if (runtime().events.erase(event) == 0) return note(cudaErrorInvalidResourceHandle);
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  std::lock_guard const lock(runtime().mutex);
  if (!known(stream) || runtime().events.count(event) == 0 || event->device != stream->device)
    return note(cudaErrorInvalidResourceHandle);
  auto const mark = std::make_shared<Mark>();
  mark->stream = stream;
  event->mark = mark;
  if (stream->capture) {
    mark->capture = stream->capture;
    mark->last = stream->capture->last[stream];
    return cudaSuccess;
  }
  stream->work.push_back({[mark] {
    mark->time = std::chrono::steady_clock::now();
    mark->done = true;
    return std::string();
  }});
  advance_by_chance();
  return note(runtime().devices[stream->device].error);
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  std::lock_guard const lock(runtime().mutex);
  if (!known(stream) || runtime().events.count(event) == 0 || event->device != stream->device)
    return note(cudaErrorInvalidResourceHandle);
  if (flags == cudaEventRecordDefault) return cudaEventRecord(event, stream);
  if (flags != cudaEventRecordExternal || !stream->capture) return note(cudaErrorInvalidValue);
  auto const mark = std::make_shared<Mark>();
  mark->stream = stream->capture->origin;
  mark->done = true;  // of no run yet
  event->mark = mark;
  return enqueue(
      stream,
      [mark] {
        mark->time = std::chrono::steady_clock::now();
        mark->done = true;
        return std::string();
      },
      [mark] { mark->done = false; });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  std::lock_guard const lock(runtime().mutex);
  if (runtime().events.count(event) == 0) return note(cudaErrorInvalidResourceHandle);
  auto const mark = event->mark;
  if (!mark) return cudaSuccess;
  if (mark->capture) return note(cudaErrorStreamCaptureUnsupported);
  if (mark->done) return note(runtime().devices[event->device].error);
  advance(mark->stream, 1);
  return cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  std::unique_lock lock(runtime().mutex);
  if (runtime().events.count(event) == 0) return note(cudaErrorInvalidResourceHandle);
  auto const mark = event->mark;
  if (!mark) return cudaSuccess;
  if (mark->capture) return note(cudaErrorStreamCaptureUnsupported);
  block(lock, [&] { return advance_until(*mark); });
  return note(runtime().devices[event->device].error);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  std::lock_guard const lock(runtime().mutex);
  if (runtime().events.count(start) == 0 || runtime().events.count(end) == 0 || !start->mark || !end->mark ||
      ((start->flags | end->flags) & cudaEventDisableTiming) != 0)
    return note(cudaErrorInvalidResourceHandle);
  if (!start->mark->done || !end->mark->done) return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(end->mark->time - start->mark->time).count();
  return cudaSuccess;
}

// ---- Memory ----

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  std::lock_guard const lock(runtime().mutex);
  *memory = nullptr;
  if (capture_forbids()) return note(cudaErrorStreamCaptureUnsupported);
  auto& device = runtime().devices[current_device];
  if (device.error != cudaSuccess) return note(device.error);
  if (bytes == 0) return cudaSuccess;
  *memory = device.memory.allocate(bytes);
  return note(*memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}
cudaError_t cudaFree(void* memory) {
  std::lock_guard const lock(runtime().mutex);
  if (memory == nullptr) return cudaSuccess;
  if (capture_forbids()) return note(cudaErrorStreamCaptureUnsupported);
  int const side = side_of(memory);
  if (side < 0) return note(cudaErrorInvalidValue);
  for (CUstream_st* stream : runtime().streams)
    if (stream->device == side) advance(stream);  // as CUDA does
  return note(runtime().devices[side].memory.release(memory) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaMallocAsync(void** memory, std::size_t bytes, cudaStream_t stream) {
  std::lock_guard const lock(runtime().mutex);
  *memory = nullptr;
  if (!known(stream)) return note(cudaErrorInvalidResourceHandle);
  if (stream->capture) return note(cudaErrorStreamCaptureUnsupported);  // CUDA can, this cannot
  auto& device = runtime().devices[stream->device];
  if (device.error != cudaSuccess) return note(device.error);
  if (bytes == 0) return cudaSuccess;
  *memory = device.memory.allocate(bytes);
  return note(*memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}
cudaError_t cudaMallocFromPoolAsync(void** memory, std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  std::lock_guard const lock(runtime().mutex);
  *memory = nullptr;
  if (!known(stream) || pool->device != stream->device) return note(cudaErrorInvalidValue);
  return cudaMallocAsync(memory, bytes, stream);
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  std::lock_guard const lock(runtime().mutex);
  if (memory == nullptr) return cudaSuccess;
  if (!known(stream)) return note(cudaErrorInvalidResourceHandle);
  if (stream->capture) return note(cudaErrorStreamCaptureUnsupported);
  auto& arena = runtime().devices[stream->device].memory;
  if (arena.size_of(memory) == Arena::none) return note(cudaErrorInvalidValue);
  stream->work.push_back(
      {[&arena, memory] { return arena.release(memory) ? std::string() : std::string("memory was freed twice"); }});
  advance_by_chance();
  return cudaSuccess;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  if (device < 0 || device >= device_count) return note(cudaErrorInvalidDevice);
  *pool = &runtime().devices[device].pool;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (attribute != cudaMemPoolAttrReleaseThreshold) return note(cudaErrorInvalidValue);
  std::memcpy(&runtime().devices[pool->device].release_threshold, value, sizeof(std::uint64_t));
  return cudaSuccess;
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  std::lock_guard const lock(runtime().mutex);
  auto const& device = runtime().devices[pool->device];
  std::uint64_t const answer =
      attribute == cudaMemPoolAttrReleaseThreshold ? device.release_threshold : device.memory.used();
  std::memcpy(value, &answer, sizeof(answer));
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) { return cudaSuccess; }

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  std::lock_guard const lock(runtime().mutex);
  *memory = nullptr;
  if (capture_forbids()) return note(cudaErrorStreamCaptureUnsupported);
  if (bytes == 0) return cudaSuccess;
  if (bytes > Arena::capacity || ::posix_memalign(memory, 4096, bytes) != 0) {
    *memory = nullptr;
    return note(cudaErrorMemoryAllocation);
  }
  std::memset(*memory, poison, bytes);
  runtime().pinned[static_cast<char*>(*memory)] = {bytes, true};
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  std::lock_guard const lock(runtime().mutex);
  if (memory == nullptr) return cudaSuccess;
  auto const found = runtime().pinned.find(static_cast<char*>(memory));
  if (found == runtime().pinned.end() || !found->second.second) return note(cudaErrorInvalidValue);
  for (CUstream_st* stream : runtime().streams) advance(stream);
  runtime().pinned.erase(found);
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* memory, std::size_t bytes, unsigned) {
  std::lock_guard const lock(runtime().mutex);
  if (memory == nullptr || bytes == 0) return note(cudaErrorInvalidValue);
  // Pages are registered, whole ones.
  constexpr std::uintptr_t page = 4096;
  auto const begin = reinterpret_cast<std::uintptr_t>(memory) / page,
             end = (reinterpret_cast<std::uintptr_t>(memory) + bytes - 1) / page;
  for (auto const& [at, one] : runtime().pinned) {
    auto const first = reinterpret_cast<std::uintptr_t>(at);
    if (first / page <= end && (first + one.first - 1) / page >= begin)
      return note(cudaErrorHostMemoryAlreadyRegistered);
  }
  runtime().pinned[static_cast<char*>(memory)] = {bytes, false};
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* memory) {
  std::lock_guard const lock(runtime().mutex);
  auto const found = runtime().pinned.find(static_cast<char*>(memory));
  if (found == runtime().pinned.end() || found->second.second) return note(cudaErrorHostMemoryNotRegistered);
  for (CUstream_st* stream : runtime().streams) advance(stream);
  runtime().pinned.erase(found);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, void const* at) {
  std::lock_guard const lock(runtime().mutex);
  int const side = side_of(at);
  void* const address = const_cast<void*>(at);
  if (side >= 0) *attributes = {cudaMemoryTypeDevice, side, address, nullptr};
  else if (is_pinned(at, 1)) *attributes = {cudaMemoryTypeHost, current_device, address, address};
  else *attributes = {cudaMemoryTypeUnregistered, -1, nullptr, address};
  return cudaSuccess;
}

namespace emulated {
namespace {

/// Rows of `width` bytes; a plain copy is one row.
struct Rows {
  char* to;
  std::size_t to_pitch;
  char const* from;
  std::size_t from_pitch, width, height;

  void copy() const {
    for (std::size_t row = 0; row < height; ++row) std::memcpy(to + row * to_pitch, from + row * from_pitch, width);
  }
  void spoil() const {
    for (std::size_t row = 0; row < height; ++row) std::memset(to + row * to_pitch, poison, width);
  }
  std::size_t extent(std::size_t pitch) const { return (height - 1) * pitch + width; }
};

/// Whether a copy that was enqueued before, in another stream perhaps, has still to read some of it.
bool is_being_read(char const* begin, std::size_t bytes) {
  for (auto const& [from, count] : runtime().host_reads)
    if (from < begin + bytes && begin < from + count) return true;
  return false;
}

cudaError_t copy(Rows rows, cudaMemcpyKind kind, CUstream_st* stream) {
  auto& r = runtime();
  std::lock_guard const lock(r.mutex);
  if (!known(stream)) return note(cudaErrorInvalidResourceHandle);
  if (rows.width == 0 || rows.height == 0) return cudaSuccess;
  if (rows.height > 1 && (rows.width > rows.to_pitch || rows.width > rows.from_pitch))
    return note(cudaErrorInvalidValue);
  int const to = side_of(rows.to), from = side_of(rows.from);
  bool const to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  bool const from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind != cudaMemcpyDefault && (to_device != (to >= 0) || from_device != (from >= 0)))
    return note(cudaErrorInvalidValue);
  if ((to >= 0 && to != stream->device) || (from >= 0 && from != stream->device)) return note(cudaErrorNotSupported);
  auto const& arena = r.devices[stream->device].memory;
  if ((to >= 0 && !arena.holds(rows.to, rows.extent(rows.to_pitch))) ||
      (from >= 0 && !arena.holds(rows.from, rows.extent(rows.from_pitch))))
    return note(cudaErrorInvalidValue);

  if (from < 0 && !stream->capture && !is_pinned(rows.from, rows.extent(rows.from_pitch))) {
    // From pageable memory: read before the call returns.
    auto const bytes = std::make_shared<std::vector<char>>(rows.width * rows.height);
    Rows const staged{bytes->data(), rows.width, rows.from, rows.from_pitch, rows.width, rows.height};
    staged.copy();
    Rows const rest{rows.to, rows.to_pitch, bytes->data(), rows.width, rows.width, rows.height};
    return note(enqueue(stream, [bytes, rest] {
      rest.copy();
      return std::string();
    }));
  }
  bool const pageable = to < 0 && !is_pinned(rows.to, rows.extent(rows.to_pitch));
  std::function<void()> on_launch;
  if (to < 0)
    on_launch = [rows] {  // what the host reads before it has waited is poison
      if (!is_being_read(rows.to, rows.extent(rows.to_pitch))) rows.spoil();
    };
  else if (from < 0)
    on_launch = [rows] { runtime().host_reads.insert({rows.from, rows.extent(rows.from_pitch)}); };
  bool const reads_host = from < 0;
  cudaError_t const error = enqueue(
      stream,
      [rows, reads_host] {
        rows.copy();
        if (reads_host) runtime().host_reads.extract({rows.from, rows.extent(rows.from_pitch)});
        return std::string();
      },
      std::move(on_launch));
  if (pageable && !stream->capture) advance(stream);  // to pageable memory: the call returns when it is done
  return note(error != cudaSuccess ? error : r.devices[stream->device].error);
}

}  // namespace
}  // namespace emulated

cudaError_t cudaMemcpyAsync(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy({static_cast<char*>(to), bytes, static_cast<char const*>(from), bytes, bytes, 1}, kind, stream);
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, void const* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy({static_cast<char*>(to), to_pitch, static_cast<char const*>(from), from_pitch, width, height}, kind,
              stream);
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  auto& r = runtime();
  std::lock_guard const lock(r.mutex);
  if (!known(stream)) return note(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return cudaSuccess;
  if (!r.devices[stream->device].memory.holds(memory, bytes)) return note(cudaErrorInvalidValue);
  return note(enqueue(stream, [memory, value, bytes] {
    std::memset(memory, value, bytes);
    return std::string();
  }));
}

// ---- Graphs ----

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  auto& r = runtime();
  std::lock_guard const lock(r.mutex);
  if (!known(stream)) return note(cudaErrorInvalidResourceHandle);
  if (stream->capture) return note(cudaErrorInvalidValue);
  auto const capture = std::make_shared<Capture>();
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->last[stream] = {};
  stream->capture = capture;
  r.captures.insert(capture);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  auto& r = runtime();
  std::lock_guard const lock(r.mutex);
  *graph = nullptr;
  if (!known(stream) || !stream->capture || stream->capture->origin != stream) return note(cudaErrorInvalidValue);
  auto const capture = stream->capture;
  r.captures.erase(capture);
  for (CUstream_st* one : r.streams)
    if (one->capture == capture) one->capture.reset();
  if (capture->invalid) return note(cudaErrorStreamCaptureInvalidated);
  // Whatever other streams did must come before the end of the stream that began.
  std::vector<bool> joined(capture->captured.work.size());
  std::vector<std::size_t> open = capture->last[stream];
  while (!open.empty()) {
    std::size_t const index = open.back();
    open.pop_back();
    if (joined[index]) continue;
    joined[index] = true;
    open.insert(open.end(), capture->captured.before[index].begin(), capture->captured.before[index].end());
  }
  for (auto const& [other, last] : capture->last)
    for (std::size_t const index : last)
      if (!joined[index]) return note(cudaErrorStreamCaptureUnjoined);
  *graph = new CUgraph_st{std::make_shared<Captured>(std::move(capture->captured))};
  r.graphs.insert(*graph);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  std::lock_guard const lock(runtime().mutex);
  if (!known(stream)) return note(cudaErrorInvalidResourceHandle);
  *status = !stream->capture           ? cudaStreamCaptureStatusNone
            : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  std::lock_guard const lock(runtime().mutex);
  if (runtime().graphs.count(graph) == 0 || nodes != nullptr) return note(cudaErrorInvalidValue);
  *count = graph->captured->work.size();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  std::lock_guard const lock(runtime().mutex);
  if (runtime().graphs.count(graph) == 0) return note(cudaErrorInvalidValue);
  *executable = new CUgraphExec_st{current_device, graph->captured};
  runtime().executables.insert(*executable);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  std::lock_guard const lock(runtime().mutex);
  if (runtime().executables.count(executable) == 0) return note(cudaErrorInvalidValue);
  if (!known(stream) || stream->device != executable->device) return note(cudaErrorInvalidResourceHandle);
  if (stream->capture) return note(cudaErrorStreamCaptureUnsupported);
  for (Work const& work : executable->captured->work)
    if (work.on_launch) work.on_launch();
  auto const replay = std::make_shared<Replay>(executable->captured, stream->device);
  auto& device = runtime().devices[stream->device];
  stream->work.push_back(
      {.run = [replay, &device] { return device.error == cudaSuccess ? replay->go_on() : std::string(); },
       .is_done = [replay] { return replay->is_done(); }});
  advance_by_chance();
  return note(device.error);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t) {
  std::lock_guard const lock(runtime().mutex);
  return note(runtime().executables.count(executable) == 0 ? cudaErrorInvalidValue : cudaSuccess);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  std::lock_guard const lock(runtime().mutex);
  if (runtime().graphs.erase(graph) == 0) return note(cudaErrorInvalidValue);
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  auto& r = runtime();
  std::lock_guard const lock(r.mutex);
  if (r.executables.count(executable) == 0) return note(cudaErrorInvalidValue);
  for (CUstream_st* stream : r.streams)
    if (stream->device == executable->device) advance(stream);
  r.executables.erase(executable);
  delete executable;
  return cudaSuccess;
}
