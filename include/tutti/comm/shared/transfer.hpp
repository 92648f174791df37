// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Messages as their receiver and their sender keep them, and how a receiver reads a large one in its sender's memory.

#include <tutti/comm/collective.hpp>
#include <tutti/comm/shared/board.hpp>
#include <tutti/comm/shared/copy.hpp>
#include <tutti/comm/shared/parcel.hpp>
#include <tutti/comm/shared/remote.hpp>
#include <tutti/core/owner.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tutti::comm::shared {

/// A message that came before its receive was started.
struct Letter {
  std::int64_t bytes = 0;
  int source = 0;
  int tag = 0;
  DType dtype = DType::byte;
  Channel channel = Channel::user;
  Array<std::byte> copy;
  Parcel* parcel = nullptr;  ///< where it has not been copied

  Letter() = default;
  Letter(Letter const&) = delete;
  Letter& operator=(Letter const&) = delete;
  ~Letter() {
    if (parcel != nullptr) parcel->let_go();
  }
};

/// A send or a receive under way.
struct Transfer {
  bool sends = false;
  bool complete = false;
  bool posted = false;   ///< of a send: its receiver can find it
  bool refused = false;  ///< of a receive: the sender gave its message up
  Channel channel = Channel::user;
  DType dtype = DType::byte;
  void const* from = nullptr;
  void* to = nullptr;
  std::int64_t bytes = 0;  ///< of the message, or of the buffer
  std::int64_t at = 0;     ///< received so far
  std::int64_t alone_since = 0;  ///< for its owner, and so is `looks`
  Parcel* parcel = nullptr;
  int peer = 0;
  int tag = 0;
  std::uint32_t looks = 0;
  MessageInfo info;  ///< what came
};

/// Of a slot, a parcel or a letter.
template <class Head>
MessageInfo info_of(Head const& head) noexcept {
  return {head.source, head.tag, head.bytes, true, head.dtype};
}
template <class Head>
bool fits(Head const& head, int from, int tag, Channel channel) noexcept {
  return head.channel == channel && (from < 0 || head.source == from) && (tag < 0 || head.tag == tag);
}

/// Reads a part of an offered message where it lies, so that this rank hears of failures meanwhile. True when that was
/// all; where it cannot, it declines the offer.
template <class = void>
bool read_offered(Transfer& t, Board const& board, RemoteReader& reader) noexcept {
  constexpr std::int64_t part = std::int64_t{4} << 20;
  Parcel& parcel = *t.parcel;
  Whereabouts const& source = parcel.where;
  std::int64_t const wanted = parcel.bytes < t.bytes ? parcel.bytes : t.bytes;
  std::int64_t const n = wanted - t.at < part ? wanted - t.at : part;
  void* const to = static_cast<std::byte*>(t.to) + t.at;
  if (source.place != 0) {
    copy_shared(to, board.address(source.place) + t.at, n);
  } else if (!reader.read(t.info.source, source.origin, source.address + static_cast<std::uint64_t>(t.at), to, n)) {
    t.at = 0;
    parcel.decline();
    return false;
  }
  t.at += n;
  if (t.at < wanted) return false;
  t.refused = !parcel.take();
  return true;
}

}  // namespace tutti::comm::shared
