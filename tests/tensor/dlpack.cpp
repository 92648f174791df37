// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// DLPack in both directions: contents, ownership, and what is refused.

#include "support/catch.hpp"

#include <tutti/tensor/dlpack.hpp>

using namespace tutti;

namespace {

int given_back = 0;

/// Somebody else's tensor of 2 x 3 floats.
template <class Managed>
struct Foreign {
  float elements[6] = {0, 1, 2, 3, 4, 5};
  std::int64_t shape[2] = {2, 3};
  std::int64_t strides[2] = {3, 1};
  Managed managed{};
  Foreign() {
    managed.array.data = elements;
    managed.array.ndim = 2;
    managed.array.code = 2;
    managed.array.bits = 32;
    managed.array.shape = shape;
    managed.array.strides = strides;
    managed.deleter = [](Managed*) { ++given_back; };
  }
};

}  // namespace

TEST_CASE("a tensor goes through DLPack and comes back without a copy") {
  auto x = full<float>(Shape{4, 5}, 2.5f);
  float const* const memory = x.data();
  DlpackTensor* const out = to_dlpack(std::move(x));
  CHECK(out->major == 1);
  CHECK(out->array.data == memory);
  CHECK(out->array.device_type == 1);
  CHECK(out->array.ndim == 2);
  CHECK(out->array.shape[1] == 5);
  CHECK(out->array.strides[0] == 5);
  CHECK((out->array.code == 2 && out->array.bits == 32 && out->array.lanes == 1));
  {
    Tensor<float> const back = from_dlpack<float>(out);
    CHECK(back.data() == memory);
    CHECK(back(3, 4) == 2.5f);
  }  // the deleter ran: the leak checker would tell otherwise
  OldDlpackTensor* const old = to_old_dlpack(full<bfloat16>(Shape{2}, bfloat16(1.0f)));
  CHECK(old->array.code == 4);
  old->deleter(old);
}

TEST_CASE("somebody else's tensor is given back once") {
  given_back = 0;
  Foreign<DlpackTensor> foreign;
  {
    auto x = from_dlpack<float>(&foreign.managed);
    CHECK(x(1, 2) == 5.0f);
    auto const moved = std::move(x);
    CHECK(given_back == 0);
  }
  CHECK(given_back == 1);
  Foreign<OldDlpackTensor> old;
  static_cast<void>(from_dlpack<float>(&old.managed));
  CHECK(given_back == 2);
}

TEST_CASE("views of DLPack have strides") {
  Foreign<DlpackTensor> foreign;
  foreign.shape[0] = 3;
  foreign.shape[1] = 2;
  foreign.strides[0] = 1;
  foreign.strides[1] = 3;
  auto const x = view_of_dlpack<float const>(foreign.managed.array);
  CHECK(x(2, 1) == 5.0f);
  foreign.managed.array.strides = nullptr;
  foreign.managed.array.byte_offset = 4;
  foreign.managed.array.ndim = 1;
  CHECK(view_of_dlpack<float>(foreign.managed.array)(0) == 1.0f);
}

TEST_CASE("what is no such tensor stays with the caller") {
  given_back = 0;
  Foreign<DlpackTensor> foreign;
  DlpackTensor& managed = foreign.managed;
  REQUIRE_ERROR(from_dlpack<float>(static_cast<DlpackTensor*>(nullptr)), ErrorKind::invalid_argument, "null");
  REQUIRE_ERROR(from_dlpack<double>(&managed), ErrorKind::dtype, "type code 2 with 32 bits");
  REQUIRE_ERROR(from_dlpack<std::int32_t>(&managed), ErrorKind::dtype, "not those of int32");
  managed.array.device_type = 2;
  REQUIRE_ERROR(from_dlpack<float>(&managed), ErrorKind::device, "device type 2, not on cpu");
  managed.array.device_type = 1;
  managed.flags = 1;
  REQUIRE_ERROR(from_dlpack<float>(&managed), ErrorKind::invalid_argument, "read-only");
  managed.flags = 0;
  managed.major = 2;
  REQUIRE_ERROR(from_dlpack<float>(&managed), ErrorKind::invalid_argument, "major version");
  managed.major = 1;
  managed.array.ndim = 9;
  REQUIRE_ERROR(from_dlpack<float>(&managed), ErrorKind::shape, "9 axes");
  managed.array.ndim = 2;
  foreign.strides[0] = 1;
  REQUIRE_ERROR(from_dlpack<float>(&managed), ErrorKind::shape, "one after another");
  foreign.strides[0] = -3;
  REQUIRE_ERROR(from_dlpack<float>(&managed), ErrorKind::shape, "backwards");
  CHECK(given_back == 0);
}
