// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once
/// @file
/// Where the time of a program goes: every step's time beside the least that the machine allows (roofline.hpp), and the
/// last run as a trace for Chrome's viewer and Perfetto.

#include <tutti/core/concat.hpp>
#include <tutti/core/json_text.hpp>
#include <tutti/core/list.hpp>
#include <tutti/graph/roofline.hpp>
#include <tutti/graph/steps.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::graph {

/// Times of the steps of one program, which outlives it.
class Profile {
 public:
  Profile() = default;
  explicit Profile(StepList const& list) : list_(&list), times_(list.steps.size()) {}
  bool measures() const noexcept { return list_ != nullptr; }

  /// The first run, which touches memory for the first time, does not count once there is another.
  void begin_run(std::int64_t now) noexcept {
    run_begin_ = now;
    if (++runs_ != 2 || warm_) return;
    warm_ = true;
    runs_ = 1;
    for (Times& times : times_) times.sum = 0;
  }
  void add(std::size_t step, std::int64_t begin, std::int64_t end) noexcept {
    times_[step].begin = begin;
    times_[step].last = end - begin;
    times_[step].sum += end - begin;
  }
  /// Adds the runs that count of another profile of an equal program: of another State. The last run is the later one.
  void add(Profile const& other) noexcept {
    if (other.runs_ == 0 || (warm_ && !other.warm_)) return;
    bool const anew = other.warm_ && !warm_, later = other.run_begin_ > run_begin_;
    for (std::size_t s = 0; s < times_.size(); ++s) {
      std::int64_t const sum = other.times_[s].sum + (anew ? 0 : times_[s].sum);
      if (later) times_[s] = other.times_[s];
      times_[s].sum = sum;
    }
    runs_ = other.runs_ + (anew ? 0 : runs_);
    warm_ = warm_ || other.warm_;
    run_begin_ = std::max(run_begin_, other.run_begin_);
  }
  /// Whether the first run does not count: there was another.
  bool skips_first() const noexcept { return warm_; }
  /// Nanoseconds of a step, summed over the runs that count.
  std::int64_t nanoseconds(std::size_t step) const { return times_[step].sum; }
  std::size_t size() const noexcept { return times_.size(); }

  /// A line for every operation (what a step does, on which shapes, for which line and ranges of the user), the longest
  /// first:
  /// steps in it, milliseconds a run, share of the run, rate, and with a roofline how much of its least time is in its
  /// time. Above 100 %: operands came from a cache.
  std::string table(Roofline const& roofline = {}) const {
    struct Row {
      std::string what, where;
      std::int64_t ns = 0, count = 0;
      double flops = 0, bytes = 0, least = 0;
    };
    List<Row> rows;
    std::int64_t total = 0;
    for (std::size_t s = 0; s < times_.size(); ++s) {
      Step const& step = list_->steps[s];
      std::string const what = description(step);
      std::string const place = step.scope.empty() ? step.where : concat(step.where, "  ", step.scope);
      std::size_t r = 0;
      while (r < rows.size() && !(rows[r].what == what && rows[r].where == place)) ++r;
      if (r == rows.size()) rows.push_back({what, place});
      StepCost const cost = cost_of(step);
      rows[r].ns += times_[s].sum;
      ++rows[r].count;
      rows[r].flops += cost.flops;
      rows[r].bytes += cost.bytes;
      rows[r].least += roofline.least(step, cost);
      total += times_[s].sum;
    }
    rows.stable_sort([](Row const& a, Row const& b) { return a.ns > b.ns; });
    double const runs = static_cast<double>(std::max<std::int64_t>(runs_, 1));
    std::string out = line("operation", "steps", "ms a run", "%", "GFLOP/s", "GB/s", "% roof", "where");
    double least = 0;
    for (Row const& row : rows) {
      double const seconds = static_cast<double>(row.ns) / 1e9 / runs;
      least += row.least;
      out += line(row.what, std::to_string(row.count), fixed(seconds * 1e3, 3),
                  fixed(100.0 * static_cast<double>(row.ns) / static_cast<double>(std::max<std::int64_t>(total, 1)), 1),
                  row.flops > 0 ? rate(row.flops, seconds) : "", row.bytes > 0 ? rate(row.bytes, seconds) : "",
                  row.least > 0 && seconds > 0 ? fixed(100 * row.least / seconds, 1) : "", row.where);
    }
    double const seconds = static_cast<double>(total) / 1e9 / runs;
    return out + line("all", std::to_string(times_.size()), fixed(seconds * 1e3, 3), "100.0", "", "",
                      least > 0 && seconds > 0 ? fixed(100 * least / seconds, 1) : "", "");
  }

  /// The last run in Chrome's trace event format, a JSON document: one row of boxes for `rank`. Above the boxes of
  /// steps stand those of the ranges that they were traced in (Builder::scope), and "layer 3" for iterations of loops.
  std::string trace(int rank = 0) const {
    std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
    char const* separator = "\n";
    for (Range const& range : ranges())  // before what is in them: a viewer puts the first of equal boxes on top
      out += concat(std::exchange(separator, ",\n"), "{\"name\":\"", json_text(range.name),
                    "\",\"cat\":\"range\",\"ph\":\"X\",\"pid\":", rank, ",\"tid\":0,\"ts\":",
                    microseconds(range.begin - run_begin_), ",\"dur\":", microseconds(range.end - range.begin), "}");
    for (std::size_t s = 0; s < times_.size(); ++s) {
      if (times_[s].begin == 0) continue;
      Step const& step = list_->steps[s];
      StepCost const cost = cost_of(step);
      double const seconds = static_cast<double>(times_[s].last) / 1e9;
      out += concat(std::exchange(separator, ",\n"), "{\"name\":\"", name(step.kind), "\",\"ph\":\"X\",\"pid\":", rank,
                    ",\"tid\":0,\"ts\":", microseconds(times_[s].begin - run_begin_), ",\"dur\":",
                    microseconds(times_[s].last), ",\"args\":{\"what\":\"", description(step),
                    "\",\"where\":\"", json_text(step.where), "\",\"layer\":", step.layer,
                    ",\"gflops\":", seconds > 0 ? fixed(cost.flops / seconds / 1e9, 2) : "0",
                    ",\"gbytes_a_second\":", seconds > 0 ? fixed(cost.bytes / seconds / 1e9, 2) : "0", "}}");
    }
    return out + "\n]}\n";
  }

  /// "gemm 256x2304x768 bfloat16", "elementwise (4, 64, 768)"
  static std::string description(Step const& step) {
    std::string text(name(step.kind));
    if (step.kind == StepKind::gemm) {
      Shape const& c = step.writes[0].shape;
      int const rank = c.rank();
      text += " ";
      for (int axis = 0; axis < rank - 2; ++axis) text += concat(c[axis], " of ");
      text += concat(c[rank - 2], "x", c[rank - 1], "x", step.reads[0].shape[rank - 1]);
    } else if (step.kind == StepKind::adamw) {
      std::int64_t size = 0;
      for (std::size_t i = 4; i < step.reads.size(); i += 4) size += step.reads[i].shape.size();
      text += concat(" ", size);
    } else {
      Ref const* largest = nullptr;
      for (List<Ref> const* list : {&step.writes, &step.reads})
        for (Ref const& ref : *list)
          if (ref && (largest == nullptr || ref.shape.size() > largest->shape.size())) largest = &ref;
      if (largest != nullptr) text += " " + to_string(largest->shape);
    }
    if (step.product != DType::float32) text += concat(" ", tutti::name(step.product));
    if (step.mesh_axis != MeshAxis::data) text += concat(", axis ", name(step.mesh_axis));
    return text;
  }

 private:
  struct Times {
    std::int64_t begin = 0, last = 0, sum = 0;  // nanoseconds
  };

  struct Range {
    std::string name;
    std::int64_t begin = 0, end = 0;
  };

  /// Of the last run: steps one after another that are in one; the outer ones first.
  List<Range> ranges() const {
    List<Range> all;
    List<std::size_t> open;
    for (std::size_t s = 0; s < times_.size(); ++s) {
      if (times_[s].begin == 0) continue;
      List<std::string> const path = path_of(list_->steps[s]);
      std::size_t same = 0;
      while (same < open.size() && same < path.size() && all[open[same]].name == path[same]) ++same;
      open.resize(same);
      for (std::size_t i = same; i < path.size(); ++i) {
        open.push_back(all.size());
        all.push_back({path[i], times_[s].begin, 0});
      }
      for (std::size_t const range : open) all[range].end = times_[s].begin + times_[s].last;
    }
    return all;
  }
  /// "decoder/*/attention" of layer 3: decoder, layer 3, attention. Of nested loops the inner one's iteration is known.
  static List<std::string> path_of(Step const& step) {
    std::string const layer = step.layer < 0 ? "loop" : concat("layer ", step.layer);
    if (step.scope.empty()) return step.layer < 0 ? List<std::string>() : List<std::string>{layer};
    List<std::string> path;
    std::size_t inner = 0;
    for (std::size_t begin = 0; begin <= step.scope.size();) {
      std::size_t const end = std::min(step.scope.find('/', begin), step.scope.size());
      path.push_back(step.scope.substr(begin, end - begin));
      if (path.back() == "*") inner = path.size(), path.back() = "loop";
      begin = end + 1;
    }
    if (inner > 0) path[inner - 1] = layer;
    return path;
  }
  static std::string microseconds(std::int64_t ns) { return fixed(static_cast<double>(ns) / 1e3, 3); }

  static std::string fixed(double value, int digits) {
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", digits, value);
    return text;
  }
  static std::string rate(double work, double seconds) { return seconds > 0 ? fixed(work / seconds / 1e9, 1) : ""; }
  static std::string line(std::string_view what, std::string_view steps, std::string_view ms, std::string_view share,
                          std::string_view flops, std::string_view bytes, std::string_view roof,
                          std::string_view where) {
    auto const padded = [](std::string_view text, std::size_t width, bool left) {
      std::string const space(text.size() < width ? width - text.size() : 0, ' ');
      return left ? concat(text, space) : concat(space, text);
    };
    std::string out = concat(padded(what, 44, true), padded(steps, 6, false), padded(ms, 11, false),
                             padded(share, 7, false), padded(flops, 9, false), padded(bytes, 8, false),
                             padded(roof, 8, false));
    if (!where.empty()) out += concat("  ", where);
    return out + "\n";
  }
  StepList const* list_ = nullptr;
  List<Times> times_;
  std::int64_t runs_ = 0, run_begin_ = 0;
  bool warm_ = false;
};

}  // namespace tutti::graph
