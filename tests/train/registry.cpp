// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/catch.hpp"

#include <tutti/train/registry.hpp>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace tutti;
using train::Registry, train::RegistryEvent, train::Series;
using Json = Registry::Json;

TEST_CASE("records become series, values have a present, lines are heard") {
  Registry registry;
  std::vector<std::string> heard;
  auto const subscription = registry.subscribe([&](RegistryEvent const& event) {
    if (event.kind == RegistryEvent::Kind::record) heard.push_back("record " + event.json.dump());
    else if (event.kind == RegistryEvent::Kind::value) heard.push_back(event.name + " = " + event.json.dump());
    else heard.push_back(event.name);
  });
  registry.record({{"type", "step"}, {"step", 1}, {"loss", 2.5}});
  registry.record({{"type", "step"}, {"step", 2}, {"loss", 2.0}, {"note", "words are no numbers"}});
  registry.record({{"type", "end"}});
  registry.set("phase", "training");
  registry.set("phase", "validating");
  registry.set("temperature", 7, 36.5);
  registry.line("hello");
  REQUIRE(heard.size() == 7);
  CHECK(heard[0] == R"(record {"loss":2.5,"step":1,"type":"step"})");
  CHECK(heard[4] == R"(phase = "validating")");
  CHECK(heard[5] == "temperature = 36.5");
  CHECK(heard[6] == "hello");
  CHECK(registry.get("phase") == "validating");
  CHECK(registry.get("step/loss") == 2.0);
  CHECK(registry.get("temperature") == 36.5);
  CHECK(registry.get("nothing").is_null());
  auto const loss = registry.series("step/loss");
  REQUIRE(loss.size() == 2);
  CHECK((loss[1].step == 2 && loss[1].value == 2.0));
  CHECK(registry.series("temperature").size() == 1);
  CHECK(registry.values() == Json{{"phase", "validating"}, {"temperature", 36.5}});
}

TEST_CASE("who unsubscribes hears nothing more, also from within a call, and the others go on") {
  Registry registry;
  int first = 0, second = 0;
  Registry::Subscription own;
  own = registry.subscribe([&](RegistryEvent const&) {
    ++first;
    own = {};
  });
  {
    auto const other = registry.subscribe([&](RegistryEvent const&) { ++second; });
    registry.line("a");
    registry.line("b");
  }
  registry.line("c");
  CHECK(first == 1);
  CHECK(second == 2);
  Registry::Subscription later;
  {
    Registry gone;
    later = gone.subscribe([](RegistryEvent const&) {});
  }
  later = {};  // a subscription may outlive its registry
}

TEST_CASE("what a subscriber publishes, asks and subscribes to is heard after the event at hand") {
  Registry registry;
  std::vector<std::string> heard;
  Registry::Subscription inner;
  auto const outer = registry.subscribe([&](RegistryEvent const& event) {
    heard.push_back(event.name);
    if (event.name != "one") return;
    registry.line("two");
    CHECK(registry.get("x") == 3);
    inner = registry.subscribe([&](RegistryEvent const& more) { heard.push_back("inner " + more.name); });
  });
  registry.set("x", 3);
  registry.line("one");
  CHECK(heard == std::vector<std::string>{"x", "one", "two", "inner two"});
}

TEST_CASE("what a subscriber throws comes to who published, after all have heard") {
  Registry registry;
  int heard = 0;
  auto const bad = registry.subscribe([](RegistryEvent const& event) {
    if (event.name == "bad") throw std::runtime_error("the disk is full");
  });
  auto const good = registry.subscribe([&](RegistryEvent const&) { ++heard; });
  std::string said;
  try {
    registry.line("bad");
  } catch (std::runtime_error const& error) {
    said = error.what();
  }
  CHECK(said == "the disk is full");
  CHECK(heard == 1);
  registry.line("good");
  CHECK(heard == 2);
}

TEST_CASE("threads publish at once: every event is heard once, by all in one order, and readers see whole values") {
  Registry registry;
  constexpr int threads = 4, each = 500;
  std::vector<std::string> one, two;
  std::atomic<bool> stop{false};
  std::atomic<int> torn{0};
  {
    auto const first = registry.subscribe([&](RegistryEvent const& event) { one.push_back(event.name); });
    auto const second = registry.subscribe([&](RegistryEvent const& event) { two.push_back(event.name); });
    std::thread reader([&] {
      while (!stop) {
        Json const value = registry.get("pair");
        if (!value.is_null() && value.at(0) != value.at(1)) ++torn;
        static_cast<void>(registry.series("step/loss"));
        auto const brief = registry.subscribe([](RegistryEvent const&) {});
      }
    });
    std::vector<std::thread> writers;
    for (int t = 0; t < threads; ++t)
      writers.emplace_back([&, t] {
        for (int i = 0; i < each; ++i) {
          registry.line(std::to_string(t) + "." + std::to_string(i));
          registry.set("pair", Json::array({i, i}));
          registry.record({{"type", "step"}, {"step", i}, {"loss", 1.0}});
        }
      });
    for (auto& writer : writers) writer.join();
    stop = true;
    reader.join();
    // Who published last may have left the handing on to another, which is done by now: it has ended.
  }
  CHECK(torn == 0);
  CHECK(one.size() == std::size_t{3} * threads * each);
  CHECK(one == two);
  std::vector<int> next(threads, 0);
  bool ordered = true;
  for (std::string const& name : one)
    if (auto const dot = name.find('.'); dot != name.npos)
      ordered = ordered && std::stoi(name.substr(dot + 1)) == next[static_cast<std::size_t>(std::stoi(name))]++;
  CHECK(ordered);  // of one thread
}

TEST_CASE("a destroyed subscription is sure not to be in a call of another thread any more") {
  Registry registry;
  std::atomic<int> inside{0}, wrong{0};
  std::atomic<bool> stop{false};
  std::thread publisher([&] {
    while (!stop) registry.line("x");
  });
  for (int i = 0; i < 200; ++i) {
    {
      auto const subscription = registry.subscribe([&](RegistryEvent const&) {
        ++inside;
        std::this_thread::yield();
        --inside;
      });
      std::this_thread::yield();
    }
    if (inside != 0) ++wrong;
  }
  stop = true;
  publisher.join();
  CHECK(wrong == 0);
}

TEST_CASE("a curve stays within its size, keeps its shape, and leaves out what is not finite") {
  Series series(64);
  CHECK(series.empty());
  for (int step = 1; step <= 100000; ++step) series.add(step, step < 50000 ? 4.0 : 2.0);
  series.add(100001, std::numeric_limits<double>::quiet_NaN());
  auto const points = series.points();
  CHECK(points.size() >= 32);
  CHECK(points.size() <= 64);
  CHECK(points.front().value == 4.0);
  CHECK(series.last().step == 100000);
  bool rising = true;
  for (std::size_t i = 1; i < points.size(); ++i) rising = rising && points[i - 1].step < points[i].step;
  CHECK(rising);
  double sum = 0;
  for (auto const& point : points) sum += point.value;
  CHECK(sum / static_cast<double>(points.size()) == Approx(3.0).margin(0.1));
  // A resumed run goes over the same steps again.
  series.add(50001, 9.0);
  CHECK(series.last().step == 50001);
  for (auto const& point : series.points()) CHECK(point.step <= 50001);
}
