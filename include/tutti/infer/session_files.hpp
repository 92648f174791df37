// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// What a service's caches hold of a session, kept in a file: a conversation goes on in another process, or after
/// others took its place, without being read again.

#include <tutti/infer/sequence_files.hpp>
#include <tutti/infer/service.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti::infer {

/// Writes the longest idle cache of the session, complete or absent. Blocking: until the device has the bytes; answers
/// of others wait. Returns its tokens; 0, and no file is written, where no cache holds any of it.
/// Errors: io; unavailable (the service ends).
inline std::int64_t save_session(Service& service, std::string const& session, std::string const& path) {
  std::int64_t kept = 0;
  service.between_passes([&](Decoder& decoder, Slots& slots) {
    Slot const* longest = nullptr;
    for (Slot const& slot : slots.all())
      if (!slot.generation && slot.session == session && !slot.tokens.empty() &&
          (longest == nullptr || slot.tokens.size() > longest->tokens.size()))
        longest = &slot;
    if (longest == nullptr) return;
    Sequence sequence(decoder, static_cast<std::int32_t>(longest - slots.all().data()));
    sequence.adopt(longest->tokens);
    save_sequence(path, sequence);
    kept = sequence.length();
  });
  return kept;
}

/// Puts what save_session wrote into an idle cache, in the place of what the session has. Blocking; answers of others
/// wait. Returns its tokens.
/// Errors: those of restore_sequence, and the caches are as they were; busy (all slots answer); unavailable.
inline std::int64_t restore_session(Service& service, std::string const& session, std::string const& path) {
  std::int64_t kept = 0;
  service.between_passes([&](Decoder& decoder, Slots& slots) {
    Request request;
    request.session = session;
    request.prompt = {0};
    Slot* const slot = slots.choose(request);
    if (slot == nullptr)
      throw Error(ErrorKind::busy, "restore_session", "all caches are answering. Restore the session later");
    Sequence sequence(decoder, static_cast<std::int32_t>(slot - slots.all().data()));
    restore_sequence(path, sequence);
    kept = sequence.length();
    slots.forget(session);
    slots.put(*slot, session, {sequence.tokens().begin(), sequence.tokens().end()});
  });
  return kept;
}

}  // namespace tutti::infer
