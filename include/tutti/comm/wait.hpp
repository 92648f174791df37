// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Several requests at once: `wait_all({a, b})`, `wait_any(requests)`, `wait_some(requests)`, over requests of any
/// results and of any communicators of this rank. A request that holds no operation, because its result was taken, is
/// passed over, so that one list serves from the first to the last. Results stay in their requests: `wait` of a
/// complete one does not block.
///
///     auto a = comm.recv_async(x, 0);
///     auto b = comm.all_reduce_async(y, sum);
///     wait_all({a, b});
///     for (int next = 0; (next = wait_any(requests)) >= 0;) use(requests[next].wait());
///
/// Progress   of everything in flight on the requests' communicators. Blocking, within the deadline.
/// Errors     of the first request that fails, which then holds nothing; the others are as they were. At the deadline,
///            the timeout of the first one that is not complete, which says whom it waits for.

#include <tutti/comm/call_site.hpp>
#include <tutti/comm/request.hpp>
#include <tutti/core/list.hpp>
#include <tutti/exec/wait.hpp>

#include <cstdint>
#include <initializer_list>
#include <source_location>

namespace tutti {

/// A request of any result, which must outlive this.
class RequestRef {
 public:
  template <class Result>
  RequestRef(Request<Result>& request) noexcept : request_(&request), calls_(&calls_of<Result>) {}

  bool valid() const noexcept { return calls_->valid(request_); }
  [[nodiscard]] bool test(std::source_location where = std::source_location::current()) const {
    return calls_->test(request_, where);
  }
  void complete(CallSite where = std::source_location::current()) const { calls_->complete(request_, where); }
  double deadline_seconds() const noexcept { return calls_->deadline(request_); }

 private:
  struct Calls {
    bool (*valid)(void const*);
    bool (*test)(void*, std::source_location);
    void (*complete)(void*, CallSite);
    double (*deadline)(void const*);
  };
  template <class Result>
  static constexpr Calls calls_of{
      [](void const* request) { return static_cast<Request<Result> const*>(request)->valid(); },
      [](void* request, std::source_location where) { return static_cast<Request<Result>*>(request)->test(where); },
      [](void* request, CallSite where) { static_cast<Request<Result>*>(request)->complete(where); },
      [](void const* request) { return static_cast<Request<Result> const*>(request)->deadline_seconds(); }};

  void* request_;
  Calls const* calls_;
};

/// A std::vector, std::array, List ... of requests, or of references to them.
template <class T>
concept RequestRange = requires(T& requests) {
  RequestRef(*requests.begin());
  requests.end();
};

namespace comm {

/// What is left of a deadline that several waits share.
class SharedDeadline {
 public:
  explicit SharedDeadline(CallSite where) noexcept : where_(where), begin_(exec::now_ns()) {}
  CallSite next() const noexcept {
    if (where_.deadline_seconds() <= 0) return where_;
    double const left = where_.deadline_seconds() - seconds();
    return left > 1e-6 ? CallSite(where_, left) : where_.expired(where_.deadline_seconds());
  }
  double seconds() const noexcept { return static_cast<double>(exec::now_ns() - begin_) / 1e9; }

 private:
  CallSite where_;
  std::int64_t begin_;
};

template <RequestRange Requests>
void wait_for_all(Requests& requests, CallSite where) {
  SharedDeadline const deadline(where);
  for (auto& each : requests)
    if (RequestRef const request(each); request.valid()) request.complete(deadline.next());
}

/// Calls done(place) for complete requests, in order and until it says true, in looks at all of them until one look
/// finds any. Nothing where no request is valid.
template <RequestRange Requests, class F>
void wait_for_some(Requests& requests, CallSite where, F&& done) {
  SharedDeadline const begun(where);
  exec::Backoff backoff(exec::WaitPolicy{});
  for (bool valid = true, found = false; valid && !found; backoff.step()) {
    valid = false;
    double deadline = where.deadline_seconds();
    int place = -1;
    for (auto& each : requests) {
      RequestRef const request(each);
      ++place;
      if (!request.valid()) continue;
      valid = true;
      if (where.deadline_seconds() <= 0 && (deadline <= 0 || request.deadline_seconds() < deadline))
        deadline = request.deadline_seconds();
      if (!request.test(where)) continue;
      found = true;
      if (done(place)) return;
    }
    if (found || begun.seconds() <= deadline) continue;
    for (auto& each : requests)  // the first one's own wait throws: it knows for whom it waits
      if (RequestRef const request(each); request.valid()) {
        request.complete(where.expired(deadline));
        break;  // it came at the last moment: the next look finds it
      }
  }
}
template <RequestRange Requests>
int wait_for_any(Requests& requests, CallSite where) {
  int found = -1;
  wait_for_some(requests, where, [&](int place) {
    found = place;
    return true;
  });
  return found;
}
template <RequestRange Requests>
List<int> places_of_some(Requests& requests, CallSite where) {
  List<int> places;
  wait_for_some(requests, where, [&](int place) {
    places.push_back(place);
    return false;
  });
  return places;
}

}  // namespace comm

/// Until all are complete. A deadline of `within` is that of all together.
template <RequestRange Requests>
void wait_all(Requests& requests, CallSite where = std::source_location::current()) {
  comm::wait_for_all(requests, where);
}
template <class = void>
void wait_all(std::initializer_list<RequestRef> requests, CallSite where = std::source_location::current()) {
  comm::wait_for_all(requests, where);
}

/// Until one is complete: its place, the first where there are several; -1 where no request holds an operation.
template <RequestRange Requests>
int wait_any(Requests& requests, CallSite where = std::source_location::current()) {
  return comm::wait_for_any(requests, where);
}
template <class = void>
int wait_any(std::initializer_list<RequestRef> requests, CallSite where = std::source_location::current()) {
  return comm::wait_for_any(requests, where);
}

/// Until at least one is complete: the places of all that are by then, ascending; none where no request holds an
/// operation. What is complete counts again until its result is taken.
template <RequestRange Requests>
List<int> wait_some(Requests& requests, CallSite where = std::source_location::current()) {
  return comm::places_of_some(requests, where);
}
template <class = void>
List<int> wait_some(std::initializer_list<RequestRef> requests, CallSite where = std::source_location::current()) {
  return comm::places_of_some(requests, where);
}

}  // namespace tutti
