// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Messages of message.hpp to and from those of protocol.capnp.

#include <tutti/core/error.hpp>
#include <tutti/federate/message.hpp>

#include <capnp/message.h>
#include <kj/exception.h>
#include <tutti_federate_protocol.capnp.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace tutti::federate {

namespace detail {

/// In bytes. No reason needs more; a program may have a module's text in it.
inline constexpr std::size_t longest_text = 65536, longest_program = std::size_t{1} << 24;
inline constexpr std::uint32_t most_ranges = 65536, most_fragments = 4096;

inline std::string text_of(capnp::Text::Reader text, std::size_t longest = longest_text) {
  if (text.size() > longest) throw Error(ErrorKind::format, "federate", "a text in a message is too long");
  return {text.begin(), text.end()};
}
inline capnp::Text::Reader text_of(std::string const& text) { return {text.c_str(), text.size()}; }

struct Writer {
  wire::Message::Builder to;
  void operator()(Hello const& m) {
    auto b = to.initHello();
    b.setVersion(m.version), b.setWorker(m.worker), b.setRun(m.run), b.setLease(m.lease), b.setReady(m.ready);
    b.setSpeed(m.speed), b.setDevice(text_of(m.device)), b.setNewest(m.newest), b.setHeld(m.held);
  }
  void operator()(Ready const& m) {
    auto b = to.initReady();
    b.setSpeed(m.speed), b.setHeld(m.held);
  }
  void operator()(Heartbeat const& m) {
    auto b = to.initHeartbeat();
    b.setState(static_cast<std::uint8_t>(m.state)), b.setStep(m.step), b.setCpu(m.cpu), b.setMemory(m.memory);
    b.setWorkers(m.workers);
  }
  void operator()(Ask const& m) {
    auto b = to.initAsk();
    b.setOf(m.of), b.setOffset(m.offset), b.setBytes(m.bytes);
  }
  void operator()(Offer const& m) {
    auto b = to.initOffer();
    b.setLease(m.lease), b.setRound(m.round), b.setSamples(m.samples), b.setBytes(m.bytes), b.setChecksum(m.checksum);
    b.setSeconds(m.seconds), b.setLoss(m.loss), b.setLast(m.last);
  }
  void operator()(Leave const& m) { to.initLeave().setReason(text_of(m.reason)); }
  void operator()(Welcome const& m) {
    auto b = to.initWelcome();
    b.setRun(m.run), b.setParameters(m.parameters), b.setBatch(m.batch), b.setSequence(m.sequence);
    b.setSamples(m.samples), b.setBits(static_cast<std::uint8_t>(m.bits)), b.setChunkBytes(m.chunk_bytes);
    b.setWindow(m.window), b.setHeartbeatNs(m.heartbeat_ns), b.setLostAfterNs(m.lost_after_ns);
    b.setProgram(text_of(m.program)), b.setMix(m.mix);
    auto fragments = b.initFragments(static_cast<unsigned>(m.fragments.size()));
    for (unsigned i = 0; i < fragments.size(); ++i) fragments.set(i, m.fragments[i]);
  }
  void operator()(Assign const& m) {
    auto b = to.initAssign();
    b.setLease(m.lease), b.setRound(m.round), b.setChecksum(m.checksum), b.setBegin(m.begin), b.setEnd(m.end);
    auto ranges = b.initRanges(static_cast<unsigned>(m.ranges.size()));
    for (unsigned i = 0; i < ranges.size(); ++i)
      ranges[i].setFirst(m.ranges[i].first), ranges[i].setCount(m.ranges[i].count);
  }
  void operator()(Moved const& m) {
    auto b = to.initMoved();
    b.setRound(m.round), b.setWhole(m.whole), b.setBytes(m.bytes), b.setChecksum(m.checksum);
  }
  void operator()(Settled const& m) {
    auto b = to.initSettled();
    b.setLease(m.lease), b.setAccepted(m.accepted), b.setReason(text_of(m.reason));
  }
  void operator()(Bye const& m) {
    auto b = to.initBye();
    b.setAgain(m.again), b.setFailed(m.failed), b.setReason(text_of(m.reason));
  }
  void operator()(Chunk const& m) {
    auto b = to.initChunk();
    b.setOf(m.of), b.setOffset(m.offset), b.setChecksum(m.checksum);
    b.setBytes({reinterpret_cast<capnp::byte const*>(m.bytes.data()), m.bytes.size()});
  }
};

}  // namespace detail

inline void write(Message const& message, wire::Message::Builder to) { std::visit(detail::Writer{to}, message); }

/// The message borrows its bytes from `from`. Errors: format, for what no program of this version says, and for what
/// goes beyond the limits of sizes; kj::Exception for damaged pointers and beyond the reader's limits.
inline Message read(wire::Message::Reader from) {
  auto const refuse = [](char const* what) -> Message { throw Error(ErrorKind::format, "federate", what); };
  switch (from.which()) {
    case wire::Message::HELLO: {
      auto const m = from.getHello();
      return Hello{m.getVersion(), m.getWorker(), m.getRun(),
                   m.getLease(),   m.getReady(),  m.getSpeed(),
                   detail::text_of(m.getDevice()), m.getNewest(), m.getHeld()};
    }
    case wire::Message::READY: return Ready{from.getReady().getSpeed(), from.getReady().getHeld()};
    case wire::Message::HEARTBEAT: {
      auto const m = from.getHeartbeat();
      if (m.getState() >= worker_states) return refuse("a worker is in a state that there is not");
      return Heartbeat{static_cast<WorkerState>(m.getState()), m.getStep(), m.getCpu(), m.getMemory(), m.getWorkers()};
    }
    case wire::Message::ASK: {
      auto const m = from.getAsk();
      return Ask{m.getOf(), m.getOffset(), m.getBytes()};
    }
    case wire::Message::OFFER: {
      auto const m = from.getOffer();
      return Offer{m.getLease(),    m.getRound(),   m.getSamples(), m.getBytes(),
                   m.getChecksum(), m.getSeconds(), m.getLoss(),    m.getLast()};
    }
    case wire::Message::LEAVE: return Leave{detail::text_of(from.getLeave().getReason())};
    case wire::Message::WELCOME: {
      auto const m = from.getWelcome();
      if (m.getBits() >= setting::spelling<parallel::OuterBits>.size())
        return refuse("outer gradients of bits that this program does not know");
      if (m.getFragments().size() > detail::most_fragments) return refuse("a welcome of too many fragments");
      std::vector<std::int64_t> fragments;
      for (std::int64_t const size : m.getFragments()) fragments.push_back(size);
      return Welcome{m.getRun(),
                     m.getParameters(),
                     m.getBatch(),
                     m.getSequence(),
                     m.getSamples(),
                     static_cast<parallel::OuterBits>(m.getBits()),
                     m.getChunkBytes(),
                     m.getWindow(),
                     m.getHeartbeatNs(),
                     m.getLostAfterNs(),
                     detail::text_of(m.getProgram(), detail::longest_program),
                     fragments,
                     m.getMix()};
    }
    case wire::Message::ASSIGN: {
      auto const m = from.getAssign();
      if (m.getRanges().size() > detail::most_ranges) return refuse("an assignment of too many ranges");
      Assign assign{m.getLease(), m.getRound(), {}, m.getChecksum(), m.getBegin(), m.getEnd()};
      for (auto const range : m.getRanges()) assign.ranges.push_back({range.getFirst(), range.getCount()});
      return assign;
    }
    case wire::Message::MOVED: {
      auto const m = from.getMoved();
      return Moved{m.getRound(), m.getWhole(), m.getBytes(), m.getChecksum()};
    }
    case wire::Message::SETTLED: {
      auto const m = from.getSettled();
      return Settled{m.getLease(), m.getAccepted(), detail::text_of(m.getReason())};
    }
    case wire::Message::BYE: {
      auto const m = from.getBye();
      return Bye{m.getAgain(), m.getFailed(), detail::text_of(m.getReason())};
    }
    case wire::Message::CHUNK: {
      auto const m = from.getChunk();
      auto const bytes = m.getBytes();
      return Chunk{m.getOf(), m.getOffset(), m.getChecksum(), std::as_bytes(std::span(bytes.begin(), bytes.size()))};
    }
  }
  return refuse("a message of a kind that this program does not know");
}

}  // namespace tutti::federate
