// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/core/error.hpp>

#include "support/catch.hpp"

#include <exception>
#include <set>
#include <string>

using namespace tutti;

TEST_CASE("an error puts operation, rank, message, native text and place into one line") {
  Error error(ErrorKind::shape, "all_reduce", "counts differ: 8 here, 4 on rank 0. Pass one shape");
  std::string const plain = error.what();
  CHECK(plain.rfind("tutti::all_reduce: counts differ: 8 here, 4 on rank 0. Pass one shape (error.cpp:", 0) == 0);
  error.with_rank(1).with_native("MPI_ERR_TRUNCATE");
  std::string const full = error.what();
  CHECK(full.rfind("tutti::all_reduce [rank 1]: counts differ", 0) == 0);
  CHECK(test::contains(full, "[MPI_ERR_TRUNCATE] (error.cpp:"));
  CHECK(error.rank() == 1);
  CHECK(error.kind() == ErrorKind::shape);
  CHECK(error.operation() == "all_reduce");
  CHECK(error.native() == "MPI_ERR_TRUNCATE");
  CHECK(error.where().line() > 0);
}

TEST_CASE("an error survives copying and crossing an exception pointer") {
  std::exception_ptr held;
  try {
    throw Error(ErrorKind::io, "read", std::string(500, 'x')).with_rank(3);
  } catch (std::exception const&) {
    held = std::current_exception();
  }
  try {
    std::rethrow_exception(held);
  } catch (Error const& caught) {
    Error const copy = caught;
    CHECK(std::string(copy.what()) == caught.what());
    CHECK(copy.rank() == 3);
  }
}

TEST_CASE("every kind of error has a name of its own") {
  std::set<std::string> names;
  int count = 0;
  for (int i = 0; name(static_cast<ErrorKind>(i)) != "unknown"; ++i, ++count)
    names.insert(std::string(name(static_cast<ErrorKind>(i))));
  CHECK(count == 16);
  CHECK(names.size() == std::size_t{16});
}
