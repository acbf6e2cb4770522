#include "datasets/npy.h"

#include <gtest/gtest.h>

#include <cstring>

#include "engine/base/mapped_file.h"
#include "tests/unit/datasets/errors.h"
#include "tests/unit/datasets/temporary.h"

namespace pare {
namespace {

std::string npy(const std::string& header, const std::string& elements, char major = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += major;
  bytes += '\0';
  const std::uint32_t length = static_cast<std::uint32_t>(header.size());
  bytes.append(reinterpret_cast<const char*>(&length), major == 1 ? 2 : 4);
  return bytes + header + elements;
}

std::string dict(const std::string& descr, const std::string& shape, const char* fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }          \n";
}

Tensor parse(const std::string& bytes) {
  const auto keep = std::make_shared<std::string>(bytes);
  return npy_tensor(std::as_bytes(std::span(keep->data(), keep->size())), keep, "x.npy");
}

template <typename T>
std::string raw(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

TEST(Npy, ReadsEveryVersionAndType) {
  for (const char major : {1, 2, 3}) {
    const Tensor t = parse(npy(dict("<f4", "(2, 3)"), raw<float>({1, 2, 3, 4, 5, 6}), major));
    EXPECT_EQ(t.dtype(), DType::kF32);
    EXPECT_EQ(t.dims(), (Dims{2, 3}));
    EXPECT_EQ(t.as<float>()[5], 6.0f);
  }
  const std::pair<const char*, DType> types[] = {
      {"|b1", DType::kBool}, {"|i1", DType::kI8},  {"|u1", DType::kU8},  {"<i2", DType::kI16},
      {"<u2", DType::kU16},  {"<i4", DType::kI32}, {"<u4", DType::kU32}, {"<i8", DType::kI64},
      {"<u8", DType::kU64},  {"<f2", DType::kF16}, {"<f8", DType::kF64}};
  for (const auto& [code, dtype] : types) {
    const std::string elements(static_cast<std::size_t>(3 * bits(dtype) / 8), '\1');
    const Tensor t = parse(npy(dict(code, "(3,)"), elements));
    EXPECT_EQ(t.dtype(), dtype) << code;
    EXPECT_EQ(std::memcmp(t.data(), elements.data(), elements.size()), 0);
  }
  EXPECT_EQ(parse(npy(dict("<f4", "()"), raw<float>({7}))).dims(), Dims{});
  EXPECT_EQ(parse(npy(dict("<f4", "(0, 5)"), "")).size(), 0);
}

TEST(Npy, FortranOrderIsTurned) {
  // The array [[1,2,3],[4,5,6]] by columns.
  const Tensor t = parse(npy(dict("<i2", "(2, 3)", "True"), raw<std::int16_t>({1, 4, 2, 5, 3, 6})));
  EXPECT_EQ(t.to_ints(), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}));
  const Tensor cube =
      parse(npy(dict("|u1", "(2, 2, 2)", "True"), raw<std::uint8_t>({0, 4, 2, 6, 1, 5, 3, 7})));
  EXPECT_EQ(cube.to_ints(), (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(Npy, WritesWhatItReads) {
  const TemporaryFolder folder;
  const Tensor written = Tensor::from<float>(DType::kF32, {2, 2}, {1, -2, 3.5f, 4});
  write_npy(folder.file("a.npy"), written.view());
  EXPECT_TRUE(equal_bytes(read_npy(folder.file("a.npy")), written));
  const MappedFile file(folder.file("a.npy"));
  EXPECT_EQ(file.bytes().size(), 128u + 16u);  // what numpy.save makes: a header of 128 bytes
  for (const Dims& dims : {Dims{}, Dims{3}, Dims{0, 4}}) {
    const Tensor t = Tensor::from<std::int64_t>(
        DType::kI64, dims, std::vector<std::int64_t>(static_cast<std::size_t>(element_count(dims)), 9));
    write_npy(folder.file("b.npy"), t.view());
    EXPECT_TRUE(equal_bytes(read_npy(folder.file("b.npy")), t)) << to_string(dims);
  }
  EXPECT_ERROR(write_npy(folder.file("c.npy"), Tensor::allocate(DType::kBF16, {1}).view()), "unsupported",
               "bfloat16");
}

TEST(Npy, EveryTruncationIsAnError) {
  const std::string whole = npy(dict("<f4", "(2, 3)"), raw<float>({1, 2, 3, 4, 5, 6}));
  for (std::size_t n = 0; n < whole.size(); ++n)
    EXPECT_ERROR(parse(whole.substr(0, n)), "bad_file: ", "x.npy");
  EXPECT_ERROR(parse(whole + "z"), "bad_file", "the file holds 25");
}

TEST(Npy, HostileHeaders) {
  const struct {
    std::string header, elements;
    const char *code, *says;
  } table[] = {
      {dict("<f4", "(2684354560,)"), "1234", "bad_file", "= 10737418240 bytes, but the file holds 4"},
      {dict("<f4", "(9223372036854775807, 9223372036854775807)"), "", "bad_file", "x.npy"},
      {dict("<f4", "(0, 9223372036854775807, 2)"), "", "bad_file", ""},
      {dict("<f4", "(-1,)"), "", "bad_file", "no number from 0 up"},
      {dict("<f4", "(99999999999999999999,)"), "", "bad_file", "no number from 0 up"},
      {dict("|O", "(1,)"), "", "unsupported", "Python objects"},
      {dict(">f4", "(1,)"), "1234", "unsupported", "big-endian"},
      {dict("<U3", "(1,)"), "", "unsupported", "'<U3' is not read"},
      {dict("<c8", "(1,)"), "12345678", "unsupported", "'<c8' is not read"},
      {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }\n", "1234", "unsupported",
       "structured"},
      {"{'descr': '<f4', 'fortran_order': False}\n", "", "bad_file", "needs 'descr'"},
      {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}\n", "1234", "bad_file",
       "repeated"},
      {"{'descr': '<f4', 'fortran_order': maybe, 'shape': ()}\n", "1234", "bad_file", "True or False"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': ()} import os\n", "1234", "bad_file",
       "behind the dict"},
      {"{'descr': '<f4", "", "bad_file", "not closed"},
      {"[1, 2]\n", "", "bad_file", "not a dict"},
      {"", "", "bad_file", "not a dict"},
  };
  for (const auto& row : table) EXPECT_ERROR(parse(npy(row.header, row.elements)), row.code, row.says);

  std::string ranks = "(";
  for (int i = 0; i < 100; ++i) ranks += "1, ";
  EXPECT_ERROR(parse(npy(dict("<f4", ranks + ")"), "1234")), "more than the 64 allowed");
  EXPECT_ERROR(parse(npy(std::string(100, ' '), "", 9)), "unsupported", "version 9");
  std::string huge = npy(dict("<f4", "()"), "1234", 2);
  huge[8] = huge[9] = huge[10] = huge[11] = '\xff';  // a header of 4 GB
  EXPECT_ERROR(parse(huge), "bad_file", "header's length");
  EXPECT_ERROR(parse(std::string(1000, 'x')), "bad_file", "no .npy file");
  EXPECT_ERROR(parse(""), "bad_file", "the file is empty");
  EXPECT_ERROR(read_npy("/nowhere/x.npy"), "bad_file", "cannot open '/nowhere/x.npy'", "check the path");
}

}  // namespace
}  // namespace pare
