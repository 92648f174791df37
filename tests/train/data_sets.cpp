// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/train/data_sets.hpp>

#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

using namespace tutti;
using namespace tutti::train;

TEST_CASE("sets of data are read with their weights, and a name that is there is one set") {
  using Sets = std::vector<DataSet>;
  auto const read = [](std::string const& text) { return parse_data_sets("--data", text); };
  CHECK(read("a.bin") == Sets{{"a.bin"}});
  CHECK(read("a*.bin") == Sets{{"a*.bin"}});
  CHECK(read("C:a.bin") == Sets{{"C:a.bin"}});  // no number behind the colon
  CHECK(read("a.bin:0.7,b c.bin:3e-1") == Sets{{"a.bin", "0.7"}, {"b c.bin", "3e-1"}});
  CHECK(read("a.bin:2") == Sets{{"a.bin", "2"}});
  CHECK(read("a:b:1,c:2")[0].path == "a:b");
  CHECK(read("a.bin:0.7,b.bin:0.3")[1].number() == 0.3);
  CHECK(text_of(read("a.bin:0.7,b.bin:0.3")) == "a.bin:0.7,b.bin:0.3");
  CHECK(parse_data_sets("--validation-data", "a.bin,b.bin:1", false) == Sets{{"a.bin"}, {"b.bin:1"}});
  for (auto const& [text, why] : {std::pair{"a,b:1", "'a' has no weight"},
                                  {"a:1,", "is empty"},
                                  {",a:1", "is empty"},
                                  {"a:1,b:0", "not positive"},
                                  {"a:1,b:-2", "not positive"},
                                  {"a:1,:2", "no file"}})
    REQUIRE_ERROR(read(text), ErrorKind::configuration, why);

  test::ScratchFolder const folder;
  std::string const odd = folder / "a:1,b:2";
  io::write_file(odd, "x");
  CHECK(read(odd) == Sets{{odd}});
}
