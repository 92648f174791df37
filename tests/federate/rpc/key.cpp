// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Covers: <tutti/federate/rpc/key.hpp>
// Covers: <tutti/federate/throttle.hpp>
#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/federate/rpc/key.hpp>
#include <tutti/federate/throttle.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>

using namespace tutti;
using namespace tutti::federate;

namespace {
struct KeyFile {
  test::ScratchFolder folder;
  std::string operator()(std::string const& text, int permissions = 0600) const {
    std::string const path = folder / "key";
    std::ofstream(path) << text;
    std::filesystem::permissions(path, std::filesystem::perms(permissions));
    return path;
  }
};
}  // namespace

TEST_CASE("a proof is of one key, one role and one pair of nonces") {
  KeyFile const file;
  Key const key(file(std::string(32, 'k'))), other(file(std::string(32, 'K'))), longer(file(std::string(33, 'k')));
  Nonce const a = fresh_nonce(), b = fresh_nonce();
  REQUIRE(a != b);
  Proof const proof = key.proof("worker", a, b);
  CHECK(key.proves(proof, "worker", a, b));
  CHECK(Key(file(std::string(32, 'k'))).proves(proof, "worker", a, b));
  CHECK(!other.proves(proof, "worker", a, b));
  CHECK(!longer.proves(proof, "worker", a, b));
  CHECK(!key.proves(proof, "shepherd", a, b));
  CHECK(!key.proves(proof, "worker", b, a));
  CHECK(!key.proves(proof, "worker", a, fresh_nonce()));
  CHECK(!key.proves({}, "worker", a, b));
  CHECK(!key.proves(std::span(proof).first(31), "worker", a, b));
  for (std::size_t i = 0; i < proof.size(); ++i) {
    Proof changed = proof;
    changed[i] ^= 1;
    CHECK(!key.proves(changed, "worker", a, b));
  }
  CHECK(fresh_number() != fresh_number());
}

TEST_CASE("a key that is no secret is refused, with the way out") {
  KeyFile const file;
  std::string const good(16, 'x');
  for (int const permissions : {0640, 0604, 0620, 0602, 0644})
    REQUIRE_ERROR(Key(file(good, permissions)), ErrorKind::configuration, "chmod 600");
  REQUIRE_ERROR(Key(file("too short")), ErrorKind::configuration, "head -c 32");
  REQUIRE_ERROR(Key(file(std::string(5000, 'x'))), ErrorKind::configuration, "16 to 4095 bytes");
  REQUIRE_ERROR(Key(file.folder / "none"), ErrorKind::io, "cannot be read");
  static_cast<void>(Key(file(good, 0400)));
}

TEST_CASE("a throttle lets so many bytes through in a second, and saves nothing up") {
  Throttle throttle(1000);
  CHECK(throttle.wait(seconds(5)) == Instant(0));
  throttle.sent(500, seconds(5));
  CHECK(throttle.wait(seconds(5)) == seconds(0.5));
  CHECK(throttle.wait(seconds(5.25)) == seconds(0.25));
  throttle.sent(1000, seconds(5.5));
  CHECK(throttle.wait(seconds(5.5)) == seconds(1));
  CHECK(throttle.wait(seconds(60)) == Instant(0));
  throttle.sent(1000, seconds(60));
  CHECK(throttle.wait(seconds(60)) == seconds(1));
  Throttle none;
  none.sent(1 << 30, seconds(1));
  CHECK(none.wait(seconds(1)) == Instant(0));
}
