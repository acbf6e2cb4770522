#include "datasets/npz.h"

#include <gtest/gtest.h>

#include "datasets/dataset.h"
#include "datasets/npy.h"
#include "datasets/random.h"
#include "tests/unit/datasets/errors.h"
#include "tests/unit/datasets/golden.h"
#include "tests/unit/datasets/temporary.h"

namespace pare {
namespace {

std::vector<NamedTensor> parse(const std::string& bytes) {
  const auto keep = std::make_shared<std::string>(bytes);
  return parse_npz(std::as_bytes(std::span(keep->data(), keep->size())), keep, "x.npz");
}

TEST(NpyGolden, WhatNumpyWrites) {
  const Tensor c = read_npy(golden("c_order.npy")), f = read_npy(golden("fortran.npy"));
  EXPECT_EQ(c.dims(), (Dims{4, 3, 2}));
  EXPECT_EQ(f.dims(), (Dims{4, 3, 2}));
  for (int i = 0; i < 24; ++i) {
    EXPECT_EQ(element(c.dtype(), c.data(), i), static_cast<double>(golden_number(c.dtype(), i)));
    EXPECT_EQ(element(f.dtype(), f.data(), i), static_cast<double>(golden_number(f.dtype(), i)));
  }
  // And byte for byte the other way.
  const TemporaryFolder folder;
  write_npy(folder.file("c.npy"), c.view());
  EXPECT_EQ(bytes_of(folder.file("c.npy")), bytes_of(golden("c_order.npy")));
}

TEST(NpzGolden, StoredAndDeflated) {
  for (const char* file : {"stored.npz", "deflated.npz"}) {
    const std::vector<NamedTensor> arrays = read_npz(golden(file));
    ASSERT_EQ(arrays.size(), std::size(kGoldenTypes));
    for (std::size_t k = 0; k < arrays.size(); ++k) {
      const Tensor& t = arrays[k].tensor;
      EXPECT_EQ(t.dtype(), kGoldenTypes[k]);
      EXPECT_EQ(arrays[k].name, name(kGoldenTypes[k]));
      EXPECT_EQ(t.dims(), (Dims{5, 3}));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.data()) % static_cast<std::uintptr_t>(bits(t.dtype()) / 8),
                0u);
      for (int i = 0; i < 15; ++i)
        EXPECT_EQ(element(t.dtype(), t.data(), i), static_cast<double>(golden_number(t.dtype(), i)))
            << arrays[k].name;
    }
  }
}

TEST(NpzHostile, EveryTruncationAndDamageIsAnError) {
  for (const char* file : {"stored.npz", "deflated.npz"}) {
    const std::string whole = bytes_of(golden(file));
    for (std::size_t n = 0; n < whole.size(); ++n)
      EXPECT_ERROR(parse(whole.substr(0, n)), "bad_file: ", "x.npz");
    // Every byte is under a checksum, a size or a magic number, or means nothing here (times, versions).
    SplitMix random(3);
    for (int i = 0; i < 2000; ++i) {
      std::string bytes = whole;
      bytes[random.below(bytes.size())] ^= static_cast<char>(1 + random.below(255));
      const std::string thrown = error_of([&] { parse(bytes); });
      EXPECT_TRUE(thrown == "nothing was thrown" || thrown.starts_with("bad_file: ") ||
                  thrown.starts_with("unsupported: "))
          << thrown;
    }
  }
}

// A ZIP with one deflated entry that claims `size` bytes.
std::string claiming(const std::string& packed, std::uint32_t size) {
  const auto number = [](std::uint64_t value, int bytes) {
    return std::string(reinterpret_cast<const char*>(&value), static_cast<std::size_t>(bytes));
  };
  const std::string name = "x.npy", packed_size = number(packed.size(), 4);
  const std::string local = "PK\x03\x04" + number(20, 2) + number(0, 2) + number(8, 2) + number(0, 4) +
                            number(0, 4) + packed_size + number(size, 4) + number(name.size(), 2) +
                            number(0, 2) + name + packed;
  const std::string entry = "PK\x01\x02" + number(20, 2) + number(20, 2) + number(0, 2) + number(8, 2) +
                            number(0, 4) + number(0, 4) + packed_size + number(size, 4) +
                            number(name.size(), 2) + std::string(12, '\0') + number(0, 4) + name;
  return local + entry + "PK\x05\x06" + number(0, 4) + number(1, 2) + number(1, 2) + number(entry.size(), 4) +
         number(local.size(), 4) + number(0, 2);
}

TEST(NpzHostile, ClaimsAreNotBelieved) {
  EXPECT_ERROR(parse(claiming("\x03", 4'000'000'000u)), "bad_file",
               "claims 4000000000 bytes, which its 1 packed bytes cannot hold");
  EXPECT_ERROR(parse(claiming(std::string(1000, '\xff'), 500'000)), "bad_file", "does not unpack");
  EXPECT_ERROR(parse(claiming(std::string("\x03\x00", 2), 10)), "bad_file",
               "does not unpack to the 10 bytes");
  EXPECT_ERROR(parse(std::string(100'000, 'P')), "bad_file", "the end of the ZIP archive is missing");
  EXPECT_ERROR(parse(""), "bad_file");
}

InputSpec input(const char* name, DType dtype, std::vector<Dim> dims) {
  return {name, dtype, Shape(std::move(dims))};
}

TEST(NpzDataset, KeysAreInputNames) {
  const std::vector<InputSpec> model = {input("float32", DType::kF32, {Dim::named("n"), Dim::of(3)}),
                                        input("int64", DType::kI64, {Dim::named("n"), Dim::of(3)})};
  Dataset data(parse_data_argument(golden("stored.npz")), model);
  const Batch batch = data.read(2, 4);
  EXPECT_EQ(batch.inputs[0].dtype(), DType::kF32);
  EXPECT_EQ(batch.inputs[1].dtype(), DType::kI64);
  EXPECT_EQ(batch.inputs[1].to_ints()[0], golden_number(DType::kI64, 6));
  const std::vector<InputSpec> renamed = {input("x", DType::kF32, {Dim::named("n"), Dim::of(3)})};
  Dataset mapped(parse_data_argument(golden("deflated.npz") + ":inputs=[x:float32]"), renamed);
  EXPECT_EQ(mapped.sample_count(), 5);
  EXPECT_ERROR(Dataset(parse_data_argument(golden("stored.npz")), renamed), "usage",
               "feeds the model's input 'x'", "'bool'", "inputs=[x:KEY]");
  EXPECT_ERROR(Dataset(parse_data_argument(golden("stored.npz") + ":inputs=[y:float32]"), renamed),
               "no input 'y'");
}

}  // namespace
}  // namespace pare
