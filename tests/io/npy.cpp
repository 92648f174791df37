// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// @file
/// NumPy's .npy files: bytes as NumPy 2 writes them, both orders of bytes and of axes, and files that are damaged.

#include "io/scratch_folder.hpp"
#include "support/catch.hpp"

#include <tutti/io/npy.hpp>
#include <tutti/tensor/convert.hpp>

#include <complex>
#include <string>

using namespace tutti;

namespace {

/// A file with this dictionary, padded as NumPy pads.
std::string npy(std::string dictionary, std::string const& data, char major = 1) {
  std::size_t const before = major == 1 ? 10 : 12;
  while ((before + dictionary.size() + 1) % 64 != 0) dictionary += ' ';
  dictionary += '\n';
  std::string file = "\x93NUMPY";
  file += major;
  file += '\0';
  file += static_cast<char>(dictionary.size() & 0xff);
  file += static_cast<char>(dictionary.size() >> 8);
  if (major > 1) file += std::string(2, '\0');
  return file + dictionary + data;
}
template <class T>
std::string bytes(std::initializer_list<T> values) {
  return {reinterpret_cast<char const*>(values.begin()), values.size() * sizeof(T)};
}

}  // namespace

TEST_CASE("an array comes back from its .npy file") {
  test::ScratchFolder const folder;
  std::string const path = folder / "x.npy";
  Tensor<float> x(Shape{3, 4});
  for (std::int64_t i = 0; i < 12; ++i) x.elements()[static_cast<std::size_t>(i)] = 0.5f * static_cast<float>(i);
  io::write_npy(path, x);
  // the bytes that numpy.save writes for numpy.arange(12, dtype='f4').reshape(3, 4) / 2, spaces apart
  std::string const file = io::read_file(path);
  CHECK(file.substr(0, 8) == std::string("\x93NUMPY\x01\x00", 8));
  CHECK(file.size() == 128 + 48);
  auto const header = io::read_npy_header(path);
  CHECK(header.type == "f4");
  CHECK(header.shape == Shape{3, 4});
  CHECK(header.data_at == 128);
  auto const back = io::read_npy<float>(path);
  CHECK(back.shape() == Shape{3, 4});
  CHECK(back(2, 3) == 5.5f);
  io::write_npy(path, x.view().transpose());
  CHECK(io::read_npy<float>(path)(3, 2) == 5.5f);
  io::write_npy(path, full<std::complex<double>>(Shape{}, {1, 2}));
  CHECK(io::read_npy<std::complex<double>>(path)() == std::complex<double>(1, 2));
  io::write_npy(path, Tensor<std::int64_t>(Shape{0, 5}));
  CHECK(io::read_npy<std::int64_t>(path).shape() == Shape{0, 5});
  io::write_npy(path, full<bool>(Shape{2}, true));
  CHECK(io::read_npy<bool>(path)(1));
}

TEST_CASE("Fortran's order and big-endian elements become row-major and little-endian ones") {
  test::ScratchFolder const folder;
  std::string const path = folder / "x.npy";
  io::write_file(path, npy("{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }",
                           bytes<std::int16_t>({1, 4, 2, 5, 3, 6})));
  auto const x = io::read_npy<std::int16_t>(path);
  CHECK(x.shape() == Shape{2, 3});
  for (std::int64_t i = 0; i < 6; ++i) CHECK(x.elements()[static_cast<std::size_t>(i)] == i + 1);
  io::write_file(path, npy("{'descr': '>u4', 'fortran_order': False, 'shape': (1,), }", std::string("\0\0\1\2", 4), 2));
  CHECK(io::read_npy<std::uint32_t>(path)(0) == 258);
  io::write_file(path, npy("{'descr': '>c8', 'fortran_order': False, 'shape': (1,), }",
                           std::string("\x3f\x80\0\0\x40\0\0\0", 8), 3));
  CHECK(io::read_npy<std::complex<float>>(path)(0) == std::complex<float>(1, 2));
}

TEST_CASE("files that are not one array of the wanted elements are refused") {
  test::ScratchFolder const folder;
  std::string const path = folder / "x.npy";
  std::string const good = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", bytes<float>({1, 2}));
  auto const refused = [&](std::string const& file, char const* why) {
    io::write_file(path, file);
    REQUIRE_ERROR(io::read_npy<float>(path), ErrorKind::format, why);
  };
  refused("", "does not begin");
  refused("PK\x03\x04 an .npz is an archive", "does not begin");
  refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "", 4), "its version is 4");
  refused(good.substr(0, good.size() - 1), "needs 8 bytes, and there are 7");
  refused(good + "x", "needs 8 bytes, and there are 9");
  refused(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", ""), "or fields");
  refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 'x'}", ""), "the key 'more'");
  refused(npy("{'descr': '<f4', 'fortran_order': False}", ""), "lacks descr");
  refused(npy("{'descr': '<f4', 'fortran_order': Maybe, 'shape': ()}", ""), "neither True nor False");
  refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", ""), "something else than sizes");
  refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", ""), "more axes");
  refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} rest", bytes<float>({1, 2})), "follows");
  io::write_file(path, npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", ""));
  CHECK_THROWS_AS(io::read_npy<float>(path), Error);  // a size that does not fit 64 bits
  for (std::size_t length = 0; length < good.size(); ++length) {
    io::write_file(path, good.substr(0, length));
    CHECK_THROWS_AS(io::read_npy<float>(path), Error);
  }
  io::write_file(path, good);
  REQUIRE_ERROR(io::read_npy<double>(path), ErrorKind::dtype, "NumPy's type 'f4', not 'f8'");
}
