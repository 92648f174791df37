// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// Objects as bytes and as messages: what goes in comes out, and what is damaged is refused.
// Covers: <tutti/comm/object_parts.hpp>

#include "support/catch.hpp"

#include <tutti/backend/threads.hpp>
#include <tutti/comm/objects.hpp>

#include <deque>
#include <map>
#include <optional>
#include <set>

using namespace tutti;

namespace {

struct Person {
  std::string name;
  std::vector<double> scores;
  std::optional<int> age;
  friend bool operator==(Person const&, Person const&) = default;
};
template <class Archive>
void serialize(Archive& archive, Person& p) {
  archive(p.name, p.scores, p.age);
}

class Team {
 public:
  std::map<std::string, Person> members;
  template <class Archive>
  void serialize(Archive& archive) {
    archive& members& founded_;
  }
  void found(int year) { founded_ = year; }
  friend bool operator==(Team const&, Team const&) = default;

 private:
  int founded_ = 0;
};

struct Described {
  BOOST_HANA_DEFINE_STRUCT(Described, (std::string, title), (std::vector<std::string>, lines));
  friend bool operator==(Described const&, Described const&) = default;
};

Team team() {
  Team t;
  t.members["a"] = {"Ada", {1.5, -2.0}, 36};
  t.members["c"] = {"Charles", {}, std::nullopt};
  t.found(1843);
  return t;
}

template <class T>
void comes_back(T const& object) {
  CHECK(from_bytes<T>(to_bytes(object)) == object);
}

}  // namespace

TEST_CASE("objects come back from their bytes") {
  comes_back(std::string("tutti"));
  comes_back(std::string());
  comes_back(3.25);
  comes_back(std::vector<std::string>{"a", "", "bcd"});
  comes_back(std::vector<bool>{true, false, true});
  comes_back(std::deque<std::pair<char, double>>{{'x', 1.0}, {'y', 2.0}});
  comes_back(std::set<int>{3, 1, 2});
  comes_back(std::map<std::string, std::vector<int>>{{"one", {1}}, {"none", {}}});
  comes_back(std::tuple<int, std::string, std::array<std::string, 2>>{1, "b", {"c", "d"}});
  comes_back(std::optional<std::optional<int>>{std::optional<int>()});
  comes_back(Person{"Grace", {0.5}, 85});
  comes_back(team());
  comes_back(Described{"t", {"l1", "l2"}});
  auto const tensor = from_bytes<Tensor<float>>(to_bytes(full<float>(Shape{2, 0, 3}, 1.0f)));
  CHECK(tensor.shape() == Shape{2, 0, 3});
  auto const numbers = from_bytes<Tensor<std::int16_t>>(to_bytes(full<std::int16_t>(Shape{3, 2}, 7)));
  CHECK(numbers(2, 1) == 7);
}

TEST_CASE("bytes that hold no such object are refused") {
  auto const bytes = to_bytes(team());
  std::size_t refused = 0;
  for (std::size_t length = 0; length < bytes.size(); ++length) {  // cut off anywhere
    try {
      static_cast<void>(from_bytes<Team>(std::span(bytes).first(length)));
    } catch (Error const& error) {
      refused += error.kind() == ErrorKind::dtype;
    }
  }
  CHECK(refused == bytes.size());
  auto longer = bytes;
  longer.push_back(std::byte{0});
  REQUIRE_ERROR(from_bytes<Team>(longer), ErrorKind::dtype, "1 bytes are left behind it");
  REQUIRE_ERROR(from_bytes<Person>(bytes), ErrorKind::dtype, "another type was written");
  // a count that claims more than there is
  auto text = to_bytes(std::vector<std::string>{"a"});
  for (std::size_t i = 8; i < 16; ++i) text[i] = std::byte{0xff};
  REQUIRE_ERROR(from_bytes<std::vector<std::string>>(text), ErrorKind::dtype, "elements");
  auto shape = to_bytes(full<float>(Shape{2, 2}, 1.0f));
  for (std::size_t i = 16; i < 24; ++i) shape[i] = std::byte{0x7f};
  REQUIRE_ERROR(from_bytes<Tensor<float>>(shape), ErrorKind::dtype, "larger than they are");
}

TEST_CASE("objects are sent, broadcast and gathered") {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    std::vector<int> right(static_cast<std::size_t>(ranks));
    threads::run(ranks, [&](Communicator<Threads>& comm) {
      int const rank = comm.rank();
      auto const mine = [](int r) { return std::vector<std::string>(static_cast<std::size_t>(r), "rank"); };
      bool all = true;
      if (rank == 0)
        for (int r = 1; r < comm.size(); ++r) send_object(comm, mine(r), r, 5);
      else all = recv_object<std::vector<std::string>>(comm, 0, 5) == mine(rank);
      all = all && recv_object<Person>(comm, proc_null) == Person{};
      Team shared = rank == comm.size() - 1 ? team() : Team{};
      broadcast_object(comm, shared, comm.size() - 1);
      all = all && shared == team();
      auto const at_root = gather_objects(comm, mine(rank), comm.size() - 1);
      all = all && at_root.size() == (rank == comm.size() - 1 ? static_cast<std::size_t>(comm.size()) : 0u);
      auto const everywhere = all_gather_objects(comm, mine(rank));
      for (int r = 0; r < comm.size(); ++r) all = all && everywhere[static_cast<std::size_t>(r)] == mine(r);
      right[static_cast<std::size_t>(rank)] = all;
    });
    CHECK(right == std::vector<int>(static_cast<std::size_t>(ranks), 1));
  }
}
