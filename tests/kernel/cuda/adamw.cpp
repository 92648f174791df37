// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <tutti/exec/cuda/graph.hpp>
#include <tutti/graph/cuda/chains.hpp>
#include <tutti/kernel/cuda/adamw.hpp>

#include "kernel/cuda/support.hpp"

using namespace tutti;
using namespace tutti::test;

namespace {

constexpr float rate = 0.01f, correction1 = 0.19f, correction2 = 0.0975f, scale = 0.25f;

struct Tensors {
  std::vector<float> p, g, m, v;
};
Tensors random_tensors(std::int64_t n) {
  Random random(static_cast<std::uint64_t>(n + 7));
  return {random.floats(n), random.floats(n, 3), random.floats(n), random.floats(n, 0.5f, 0.5f)};
}

/// The update in double.
struct Updated {
  std::vector<double> p, m, v;
};
Updated updated(Tensors const& t, kernel::AdamW const& a) {
  Updated out;
  for (std::size_t i = 0; i < t.p.size(); ++i) {
    double const g = double{t.g[i]} * double{scale}, b1 = double{a.beta1}, b2 = double{a.beta2};
    out.m.push_back(b1 * t.m[i] + (1 - b1) * g);
    out.v.push_back(b2 * t.v[i] + (1 - b2) * g * g);
    double const step =
        out.m.back() / double{correction1} / (std::sqrt(out.v.back() / double{correction2}) + double{a.eps});
    out.p.push_back(t.p[i] - double{rate} * (step + double{a.weight_decay} * t.p[i]));
  }
  return out;
}

/// A tensor on the device, `shift` elements behind an aligned address.
struct Placed {
  std::size_t size, shift;
  OnDevice<float> p, g, m, v;
  OnDevice<bfloat16> copy;

  static std::vector<float> shifted(std::vector<float> values, std::size_t by) {
    values.insert(values.begin(), by, -5.0f);
    values.push_back(-5.0f);
    return values;
  }
  Placed(Tensors const& t, std::size_t by)
      : size(t.p.size()),
        shift(by),
        p(shifted(t.p, by)),
        g(shifted(t.g, by)),
        m(shifted(t.m, by)),
        v(shifted(t.v, by)),
        copy(std::vector<bfloat16>(t.p.size() + by + 1, bfloat16(-5.0f))) {}

  kernel::AdamW args(float weight_decay, bool with_copy, bool cleared) const {
    kernel::AdamW a{.size = static_cast<std::int64_t>(size), .beta2 = 0.95f, .weight_decay = weight_decay};
    a.parameter = p.data() + shift;
    a.gradient = g.data() + shift;
    a.m = m.data() + shift;
    a.v = v.data() + shift;
    a.copy = with_copy ? copy.data() + shift : nullptr;
    a.cleared = cleared ? g.data() + shift : nullptr;
    return a;
  }
};
std::vector<float> inner(OnDevice<float> const& array, std::size_t shift) {
  auto const all = array.read();
  for (std::size_t i = 0; i < shift; ++i) REQUIRE(all[i] == -5.0f);
  REQUIRE(all.back() == -5.0f);
  return {all.begin() + static_cast<std::ptrdiff_t>(shift), all.end() - 1};
}

}  // namespace

TEST_CASE("AdamW on a GPU updates many tensors in a launch, with scalars from the host or from the device") {
  std::vector<std::int64_t> const sizes{0, 1, 3, 4, 5, 1023, 4096, 4097, 9001};
  for (bool const on_device : {false, true})
    for (std::size_t const shift : {0u, 1u}) {
      CAPTURE(on_device, shift);
      std::vector<Tensors> tensors;
      std::vector<Placed> placed;
      std::vector<kernel::AdamW> parts;
      for (int turn = 0; turn < 6; ++turn)  // 54 tensors: more than one table of them
        for (std::int64_t const n : sizes) {
          if (turn > 0 && n > 5) continue;
          tensors.push_back(random_tensors(n));
          placed.emplace_back(tensors.back(), shift);
          kernel::AdamW part = placed.back().args(n % 2 == 0 ? 0.1f : 0.0f, turn % 2 == 0, turn % 3 == 0);
          if (!on_device) {
            part.learning_rate = rate;
            part.gradient_scale = scale;
            part.correction1 = correction1;
            part.correction2 = correction2;
          }
          parts.push_back(part);
        }
      while (parts.size() < 50) {  // of no elements: they take a place in no table
        parts.push_back({});
      }
      OnDevice const scalars(std::vector<float>{rate, correction1, correction2, scale});
      kernel::cuda::AdamWScalars const from{scalars.data(), scalars.data() + 1, scalars.data() + 2, scalars.data() + 3};
      kernel::cuda::adamw(cuda_context(), parts, on_device ? from : kernel::cuda::AdamWScalars{});
      for (std::size_t k = 0; k < tensors.size(); ++k) {
        CAPTURE(k, tensors[k].p.size());
        Updated const expected = updated(tensors[k], parts[k]);
        auto const p = inner(placed[k].p, shift), g = inner(placed[k].g, shift);
        require_close_on_device(p, expected.p, tolerance<float>(9), 1, "parameter");
        require_close_on_device(inner(placed[k].m, shift), expected.m, tolerance<float>(9), 1, "m");
        require_close_on_device(inner(placed[k].v, shift), expected.v, tolerance<float>(9), 1, "v");
        REQUIRE(g == (parts[k].cleared != nullptr ? std::vector<float>(g.size()) : tensors[k].g));
        auto const copy = placed[k].copy.read();
        for (std::size_t i = 0; i < copy.size(); ++i) {
          bool const written = parts[k].copy != nullptr && i >= shift && i < shift + p.size();
          REQUIRE(copy[i].bits == bfloat16(written ? p[i - shift] : -5.0f).bits);
        }
      }
    }
}

TEST_CASE("More tensors than fit into the arguments of a kernel take several launches") {
  std::vector<Tensors> tensors;
  std::vector<Placed> placed;
  std::vector<kernel::AdamW> parts;
  for (int k = 0; k < 100; ++k) {
    tensors.push_back(random_tensors(k));
    placed.emplace_back(tensors.back(), 0);
    kernel::AdamW part = placed.back().args(0, false, false);
    part.learning_rate = rate;
    part.gradient_scale = scale;
    part.correction1 = correction1;
    part.correction2 = correction2;
    parts.push_back(part);
  }
  kernel::cuda::adamw(cuda_context(), parts);
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    CAPTURE(k);
    require_close_on_device(inner(placed[k].p, 0), updated(tensors[k], parts[k]).p, tolerance<float>(9), 1,
                            "parameter");
  }
}

TEST_CASE("The sum of squares on a GPU is that of double precision, over many tensors, and the same in every run") {
  for (std::vector<std::int64_t> const& sizes : {std::vector<std::int64_t>{},
                                                 {0},
                                                 {1},
                                                 {5, 0, 16384},
                                                 {16385, 3},
                                                 {70'001},
                                                 std::vector<std::int64_t>(400, 3)}) {
    CAPTURE(sizes.size());
    double exact = 0;
    std::vector<OnDevice<float>> arrays;
    std::vector<kernel::SquareSum> parts;
    Random random(sizes.size());
    for (std::int64_t const n : sizes) {
      auto x = random.floats(n, 1e3f);
      if (n > 2) x[1] = 1e25f;  // its square is beyond float
      for (float const value : x) exact += double{value} * double{value};
      arrays.emplace_back(x);
      parts.push_back({.size = n, .x = arrays.back().data()});
    }
    OnDevice const base(std::vector<double>{12.5});
    OnDevice<double> const out(1), again(1), alone(1);
    kernel::cuda::square_sum(cuda_context(), parts, base.data(), out.data());
    kernel::cuda::square_sum(cuda_context(), parts, base.data(), again.data());
    kernel::cuda::square_sum(cuda_context(), parts, nullptr, alone.data());
    REQUIRE(close(out.read()[0], exact + 12.5, 1e-12));
    REQUIRE(close(alone.read()[0], exact, 1e-12));
    REQUIRE(bits_equal(out.read(), again.read()));
  }
  OnDevice const x(std::vector<float>{3, 4});
  OnDevice const out(std::vector<double>{12.5});
  kernel::cuda::square_sum(cuda_context(),
                           kernel::SquareSum{.size = 2, .x = x.data(), .out = out.data(), .accumulate = true});
  REQUIRE(out.read()[0] == 37.5);
  kernel::cuda::square_sum(cuda_context(), kernel::SquareSum{.size = 2, .x = x.data(), .out = out.data()});
  REQUIRE(out.read()[0] == 25);
}

TEST_CASE("A captured update clips by the norm and takes the learning rate of the run in which it is replayed") {
  using graph::Op;
  std::int64_t const n = 5000;
  Tensors const start = random_tensors(n);
  std::vector<float> const rates{0.5f, 0.01f, 0.25f};
  auto const trained = [&](bool captured) {
    Placed const placed(start, 0);
    OnDevice const scalars(std::vector<float>{0, correction1, correction2, 0});
    OnDevice<double> const squares(1);
    OnDevice<float> const norm(1);
    kernel::AdamW const part = placed.args(0.1f, true, false);
    kernel::SquareSum const of{.size = n, .x = part.gradient};
    auto const update = [&] {
      kernel::cuda::square_sum(cuda_context(), {&of, 1}, nullptr, squares.data());
      // norm = sqrt(squares); scale = 1 / max(norm, 1)
      kernel::ElementwiseInput const from{squares.data(), DType::float64, {}};
      kernel::ElementwiseInstruction const root[] = {{Op::square_root, 0}};
      kernel::ElementwiseOutput const to{1, norm.data(), DType::float32};
      graph::cuda::elementwise(cuda_context(), {{}, {&from, 1}, root, {&to, 1}});
      kernel::ElementwiseInput const norm_from{norm.data(), DType::float32, {}};
      kernel::ElementwiseInstruction const clip[] = {
          {Op::constant, -1, -1, -1, 1}, {Op::maximum, 0, 1}, {Op::divide, 1, 2}};
      kernel::ElementwiseOutput const scale_to{3, scalars.data() + 3, DType::float32};
      graph::cuda::elementwise(cuda_context(), {{}, {&norm_from, 1}, clip, {&scale_to, 1}});
      kernel::cuda::adamw(cuda_context(), part,
                          {scalars.data(), scalars.data() + 1, scalars.data() + 2, scalars.data() + 3});
    };
    cuda::Graph graph;
    for (float const each : rates) {
      cuda::copy_to_device(cuda_context().stream(), scalars.data(), &each, sizeof each);
      if (!captured || graph.size() == 0) update();  // once before capturing: working memory grows
      else graph.launch(cuda_context().stream());
      if (captured && graph.size() == 0) graph = cuda::Graph::capture(cuda_context().stream(), update);
    }
    return placed.p.read();
  };
  auto const expected = trained(false);
  REQUIRE(bits_equal(trained(true), expected));
  REQUIRE_FALSE(bits_equal(expected, Placed(start, 0).p.read()));
}
