// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Collectives of a program on a device that the host starts: when their operands have come, in the order of the steps.

#include <tutti/graph/cuda/executor.hpp>

#include <cstddef>
#include <source_location>

namespace tutti::graph::cuda {

inline comm::PortCall Executor::port_call(Step const& step) const {
  using Kind = comm::PortCall::Kind;
  Ref const &x = step.reads[0], &y = step.writes[0];
  auto const op = static_cast<comm::PortOp>(step.operation);
  switch (step.kind) {
    case StepKind::broadcast:
      return {Kind::broadcast, y.dtype, y.shape.size(), pointer(y), pointer(y), {}, step.root};
    case StepKind::all_gather: return {Kind::all_gather, x.dtype, x.shape.size(), pointer(x), pointer(y)};
    case StepKind::reduce_scatter:
      return {Kind::reduce_scatter, y.dtype, y.shape.size(), pointer(x), pointer(y), op};
    default: return {Kind::all_reduce, x.dtype, sent_elements(step), pointer(x), pointer(x), op};
  }
}

inline Owner<Call> Executor::copy_of(Step const& step, Operands const& operands) const {
  if (step.kind != StepKind::broadcast && step.root != 1) refuse_ranks(step, 1);
  return detail::launch([from = operands.reads[0], to = operands.writes[0],
                         bytes = static_cast<std::size_t>(step.reads[0].bytes())](Context& context) {
    tutti::cuda::copy_on_device(context.stream(), to, from, bytes);
  });
}

inline void Executor::take_part(std::size_t s, std::source_location where) {
  Step const& step = program_.list.steps[s];
  if (profile_.measures()) newest().marks[s + 1].record(stream(), where);
  switch (step.kind) {
    case StepKind::all_reduce_start: return send(s, where);
    case StepKind::all_reduce_wait:
    case StepKind::all_gather_wait:
    case StepKind::reduce_scatter_wait: return await(step, where);
    case StepKind::all_reduce:
      throw Error(ErrorKind::internal, "graph::cuda::Executor", "a reduction was left without a bucket");
    default: break;
  }
  if (is_start(step)) return send(s, where);
  if (is_collective(step.kind)) return collective(step, where);
  throw Error(ErrorKind::internal, "graph::cuda::Executor", "a step has no call");
}

inline comm::Port::Ticket Executor::start_call(comm::Port& port, comm::PortCall const& call,
                                               std::source_location where) {
  using Kind = comm::PortCall::Kind;
  switch (call.kind) {
    case Kind::broadcast: return port.start_broadcast(call.to, call.count, call.dtype, call.root, where);
    case Kind::all_gather: return port.start_all_gather(call.from, call.to, call.count, call.dtype, where);
    case Kind::reduce_scatter:
      return port.start_reduce_scatter(call.from, call.to, call.count, call.dtype, call.op, where);
    default: return port.start_all_reduce(call.to, call.count, call.dtype, call.op, where);
  }
}

inline std::byte* Executor::staged(Step const& step) const {
  return static_cast<std::byte*>(staged_.data()) +
         (is_collective(step.kind) ? staged_at_[lowering::at(step.slot)] : bucket_offset(step));
}
inline std::byte* Executor::staged_result(Step const& step) const {
  return is_collective(step.kind) ? staged(step) + align_up(step.reads[0].bytes()) : staged(step);
}
inline std::size_t Executor::operand_bytes(Step const& step) {
  if (is_collective(step.kind)) return static_cast<std::size_t>(step.reads[0].bytes());
  return static_cast<std::size_t>(sent_elements(step)) * size_of(step.reads[0].dtype);
}

inline void Executor::send(std::size_t s, std::source_location where) {
  Step const& step = program_.list.steps[s];
  if (is_collective(step.kind) && step.root != port_of(step)->size()) refuse_ranks(step, port_of(step)->size());
  tutti::cuda::Event& event = events_[lowering::at(step.slot)];
  event.record(stream(), where);
  if (!reaches_device(step)) {
    copies_.wait_for(event, where);
    tutti::cuda::copy_to_host(copies_, staged(step), pointer(step.reads[0]), operand_bytes(step), where);
    event.record(copies_, where);
  }
  flights_[lowering::at(step.slot)] = {.pending = true, .step = s, .port = port_of(step)};
  sent_.push_back(lowering::at(step.slot));
}

inline void Executor::begin_next() {
  Flight& flight = flights_[sent_[begun_++]];
  Step const& step = program_.list.steps[flight.step];
  comm::PortCall call = port_call(step);
  if (!reaches_device(step)) call.from = staged(step), call.to = staged_result(step);
  flight.ticket = start_call(*flight.port, call, std::source_location::current());
  flight.pending = false;
  flight.started = true;
}

inline void Executor::begin_all(std::source_location where) {
  while (begun_ < sent_.size()) {
    events_[sent_[begun_]].wait(where);
    begin_next();
  }
}

inline void Executor::progress() {
  for (std::size_t i = 0; i < begun_; ++i)
    if (Flight& flight = flights_[sent_[i]]; flight.started && flight.port->test(flight.ticket)) flight.started = false;
  while (begun_ < sent_.size() && events_[sent_[begun_]].done()) begin_next();
}

inline void Executor::await(Step const& step, std::source_location where) {
  Flight& flight = flights_[lowering::at(step.slot)];
  while (flight.pending) {  // those before it are started before it
    events_[sent_[begun_]].wait(where);
    begin_next();
  }
  Step const& begun = program_.list.steps[flight.step];
  Wait const& wait = next_wait();
  wait.begin.record(stream(), where);
  // Until the device comes here, other reductions start as soon as it has their operands; this one may complete.
  while (flight.started && !stream().idle(where)) progress();
  if (flight.started) flight.port->wait(flight.ticket);
  flight.started = false;
  if (!reaches_device(begun)) {
    bool const apart = is_collective(begun.kind);  // a bucket is summed in place
    tutti::cuda::copy_to_device(stream(), pointer(apart ? begun.writes[0] : begun.reads[0]), staged_result(begun),
                                apart ? static_cast<std::size_t>(begun.writes[0].bytes()) : operand_bytes(begun),
                                where);
  }
  wait.end.record(stream(), where);
}

inline void Executor::collective(Step const& step, std::source_location where) {
  Ref const &x = step.reads[0], &y = step.writes[0];
  comm::Port& port = *port_of(step);
  if (step.kind != StepKind::broadcast && step.root != port.size()) refuse_ranks(step, port.size());
  auto const in = static_cast<std::size_t>(x.bytes()), out = static_cast<std::size_t>(y.bytes());
  comm::PortCall call = port_call(step);
  bool const reaches = reaches_device(step), in_place = step.kind == StepKind::broadcast;
  begin_all(where);  // every rank starts them before this one
  Wait const& wait = next_wait();
  wait.begin.record(stream(), where);
  if (!reaches) {
    std::byte* const to = staging_.data() + staging_bytes_;
    std::byte* const from = in_place ? to : staging_.data();
    call.from = from, call.to = to;
    tutti::cuda::copy_to_host(stream(), from, pointer(x), in, where);
  } else if (in_place) {
    tutti::cuda::copy_on_device(stream(), pointer(y), pointer(x), in, where);
  }
  stream().wait(where);
  port.wait(start_call(port, call, where));
  if (!reaches) {
    tutti::cuda::copy_to_device(stream(), pointer(y), call.to, out, where);
    stream().wait(where);  // the next collective has the same place
  }
  wait.end.record(stream(), where);
}

}  // namespace tutti::graph::cuda
