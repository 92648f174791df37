// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// A key that a shepherd and its workers share, and the proof that one has it without telling it. This says who may
/// join. What is said afterwards is neither encrypted nor signed: who can read or change what passes over the network
/// can read or change the training. Where that matters, use a tunnel.

#include <tutti/core/error.hpp>

#include <sodium.h>
#include <sys/stat.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tutti::federate {

using Nonce = std::array<unsigned char, 32>;
using Proof = std::array<unsigned char, crypto_auth_hmacsha256_BYTES>;

/// A fresh number that nobody can foretell. Errors: unavailable.
inline Nonce fresh_nonce() {
  if (sodium_init() < 0) throw Error(ErrorKind::unavailable, "federate", "libsodium cannot be initialised");
  Nonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}
/// The same, not 0.
inline std::uint64_t fresh_number() {
  Nonce const nonce = fresh_nonce();
  std::uint64_t number = 0;
  for (int i = 0; i < 8; ++i) number = number << 8 | nonce[static_cast<std::size_t>(i)];
  return number != 0 ? number : 1;
}

/// Bytes of a file, at least 16 of them. `head -c 32 /dev/urandom > key` makes one.
class Key {
 public:
  /// Errors: io; configuration, when others than its owner can read the file, or it is too short to be a secret.
  explicit Key(std::string const& path) {
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> const file(std::fopen(path.c_str(), "rb"), &std::fclose);
    struct stat facts {};
    if (!file || ::fstat(::fileno(file.get()), &facts) != 0)
      throw Error(ErrorKind::io, "federate", "--key " + path + " cannot be read. Give a file that this user can read");
    if ((facts.st_mode & (S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH)) != 0)
      throw Error(ErrorKind::configuration, "federate",
                  "--key " + path + " can be read or written by others, so it is no secret. chmod 600 " + path);
    std::array<unsigned char, 4096> bytes;
    std::size_t const count = std::fread(bytes.data(), 1, bytes.size(), file.get());
    if (count < 16 || count == bytes.size())
      throw Error(ErrorKind::configuration, "federate",
                  "--key " + path + " must hold 16 to 4095 bytes. Make one with: head -c 32 /dev/urandom > " + path);
    if (sodium_init() < 0) throw Error(ErrorKind::unavailable, "federate", "libsodium cannot be initialised");
    crypto_hash_sha256(key_.data(), bytes.data(), count);
    sodium_memzero(bytes.data(), bytes.size());
  }
  ~Key() { sodium_memzero(key_.data(), key_.size()); }
  Key(Key const&) = default;
  Key& operator=(Key const&) = default;

  /// That `who` ("shepherd" or "worker") has the key, said for this connection alone. HMAC-SHA-256 over the role and
  /// both nonces: the role, so that nobody's proof can be sent back to him.
  Proof proof(std::string_view who, Nonce const& worker, Nonce const& shepherd) const {
    crypto_auth_hmacsha256_state state;
    crypto_auth_hmacsha256_init(&state, key_.data(), key_.size());
    std::string const role = "tutti federate 1 " + std::string(who);
    crypto_auth_hmacsha256_update(&state, reinterpret_cast<unsigned char const*>(role.c_str()), role.size() + 1);
    crypto_auth_hmacsha256_update(&state, worker.data(), worker.size());
    crypto_auth_hmacsha256_update(&state, shepherd.data(), shepherd.size());
    Proof proof;
    crypto_auth_hmacsha256_final(&state, proof.data());
    return proof;
  }
  /// In a time that does not depend on what is wrong.
  bool proves(std::span<unsigned char const> said, std::string_view who, Nonce const& worker,
              Nonce const& shepherd) const {
    Proof const wanted = proof(who, worker, shepherd);
    return said.size() == wanted.size() && sodium_memcmp(said.data(), wanted.data(), wanted.size()) == 0;
  }

 private:
  std::array<unsigned char, crypto_hash_sha256_BYTES> key_;
};

}  // namespace tutti::federate
