// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/train/product_choices.hpp>

#include "support/catch.hpp"

#include <unistd.h>

#include <filesystem>
#include <string>

namespace {

using namespace tutti;

struct Chooser {
  std::string chosen, taken;
  bool fits = true;
  std::string product_choices() const { return chosen; }
  bool take_product_choices(std::string const& text) {
    if (text == "damaged") throw Error(ErrorKind::format, "test", "line 4 is damaged");
    if (fits) taken = text;
    return fits;
  }
};

}  // namespace

TEST_CASE("choices of products lie beside a run's checkpoints, a file a rank, and are read from there") {
  std::filesystem::path const run =
      std::filesystem::temp_directory_path() / ("tutti_choices_" + std::to_string(::getpid()));
  std::filesystem::path const checkpoint = run / "checkpoints" / "step_00000001";
  Chooser none, one{"of rank one", "", true}, other;
  train::keep_product_choices(none, run, 0);
  CHECK_FALSE(std::filesystem::exists(run));
  train::keep_product_choices(one, run, 1);
  CHECK(train::take_product_choices(other, checkpoint, 0).empty());
  CHECK(other.taken.empty());
  CHECK(train::take_product_choices(other, checkpoint, 1).empty());
  CHECK(other.taken == "of rank one");
  other.fits = false;
  CHECK(train::take_product_choices(other, checkpoint, 1).find("another version of cuBLASLt") != std::string::npos);
  one.chosen = "damaged";
  train::keep_product_choices(one, run, 1);
  REQUIRE_ERROR(train::take_product_choices(other, checkpoint, 1), ErrorKind::format, "products.rank_0001.txt: line 4");
  std::filesystem::remove_all(run);
}
