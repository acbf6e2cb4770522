#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "datasets/dataset.h"
#include "datasets/isolated.h"
#include "datasets/random.h"
#include "tests/unit/datasets/errors.h"
#include "tests/unit/datasets/golden.h"
#include "tests/unit/datasets/temporary.h"

namespace pare {
namespace {

TEST(Hdf5Golden, EveryTypeThatH5pyWrites) {
  const std::unique_ptr<Source> source = hdf5_source(golden("plain.h5"));
  EXPECT_EQ(source->count(), 5);
  ASSERT_EQ(source->columns().size(), std::size(kGoldenTypes));  // no text, no groups, no soft links
  for (std::size_t c = 0; c < source->columns().size(); ++c) {
    const Source::Column& column = source->columns()[c];
    EXPECT_EQ(column.name, name(column.dtype));
    EXPECT_EQ(column.sample, (Dims{3}));
    std::vector<std::byte> out(static_cast<std::size_t>(4 * byte_count(column.dtype, {3})));
    const std::vector<std::int64_t> rows = {4, 1, 2, 0};
    source->gather(static_cast<int>(c), rows, out.data(), nullptr);
    for (std::int64_t r = 0; r < 4; ++r)
      for (std::int64_t i = 0; i < 3; ++i)
        EXPECT_EQ(element(column.dtype, out.data(), r * 3 + i),
                  static_cast<double>(golden_number(column.dtype, rows[static_cast<std::size_t>(r)] * 3 + i)))
            << column.name;
  }
}

TEST(Hdf5Golden, PackedImagesWithLabels) {
  const InputSpec image{"image", DType::kF32, Shape({Dim::named("n"), Dim::of(3), Dim::of(4), Dim::of(4)})};
  Dataset data(
      parse_data_argument(golden("packed.h5") + ":labels=label,layout=nhwc_to_nchw,scale=1/255,shuffle=2"),
      {image});
  EXPECT_EQ(data.sample_count(), 9);
  ThreadPool pool(2);
  const Batch batch = data.read(0, 9, &pool);
  const std::vector<std::int64_t> labels = batch.labels.to_ints();  // label i is the row
  const float scale = static_cast<float>(1.0 / 255.0);
  for (std::size_t s = 0; s < 9; ++s)
    for (std::int64_t c = 0; c < 3; ++c)
      for (std::int64_t p = 0; p < 16; ++p)
        EXPECT_EQ(batch.inputs[0].as<float>()[(static_cast<std::int64_t>(s) * 3 + c) * 16 + p],
                  static_cast<float>(golden_number(DType::kU8, labels[s] * 48 + p * 3 + c)) * scale);
}

TEST(Hdf5Hostile, DamageIsAnError) {
  const TemporaryFolder folder;
  EXPECT_ERROR(hdf5_source(golden("big_endian.h5")), "unsupported", "'x' are of other types",
               "little-endian");
  EXPECT_ERROR(hdf5_source(folder.write("a.h5", "")), "bad_file", "is empty");
  EXPECT_ERROR(hdf5_source(folder.write("a.h5", std::string(5000, 'x'))), "bad_file", "HDF5 cannot open");
  EXPECT_ERROR(hdf5_source(folder.file("missing.h5")), "bad_file", "missing.h5");
  const auto read_all = [&](const std::string& bytes) {
    const std::unique_ptr<Source> source = hdf5_source(folder.write("a.h5", bytes));
    if (source->count() > 1000) return;  // a damaged size that the file may well have; reading would tell
    std::vector<std::int64_t> rows;
    for (std::int64_t r = 0; r < source->count(); ++r) rows.push_back(r);
    for (std::size_t c = 0; c < source->columns().size(); ++c) {
      const Source::Column& column = source->columns()[c];
      const std::int64_t bytes_all = byte_count(column.dtype, column.sample) * source->count();
      if (bytes_all > 1 << 20) continue;
      std::vector<std::byte> out(static_cast<std::size_t>(bytes_all));
      source->gather(static_cast<int>(c), rows, out.data(), nullptr);
    }
  };
  for (const char* name : {"plain.h5", "packed.h5"}) {
    const std::string whole = bytes_of(golden(name));
    for (std::size_t n = 0; n < whole.size(); n += 1 + whole.size() / 12)
      EXPECT_ERROR(read_all(whole.substr(0, n)), "bad_file: ", "a.h5");
    SplitMix random(4);
    for (int i = 0; i < 20; ++i) {
      std::string bytes = whole;
      for (int k = 0; k < 3; ++k)
        bytes[random.below(bytes.size())] ^= static_cast<char>(1 + random.below(255));
      const std::string thrown = error_of([&] { read_all(bytes); });
      EXPECT_TRUE(thrown == "nothing was thrown" || thrown.starts_with("bad_file: ") ||
                  thrown.starts_with("unsupported: "))
          << thrown;
    }
  }
}

TEST(Isolated, PassesTextAndErrors) {
  EXPECT_EQ(run_isolated("x", 100, 10, [] { return std::string("hello\0there", 11); }),
            std::string("hello\0there", 11));
  EXPECT_ERROR(run_isolated("x", 100, 10,
                            []() -> std::string {
                              throw make_error(ErrorCode::kUnsupported, "no").at("place").hint("do");
                            }),
               "unsupported: no | place | do");
  EXPECT_ERROR(run_isolated("x", 100, 10, []() -> std::string { throw std::runtime_error("odd"); }),
               "bad_file: odd");
}

TEST(Isolated, CrashesBecomeErrors) {
  EXPECT_ERROR(run_isolated("'x.h5'", 100, 10,
                            []() -> std::string {
                              raise(SIGSEGV);
                              return "";
                            }),
               "bad_file: reading 'x.h5' failed: the reader crashed (signal 11)");
  EXPECT_ERROR(run_isolated("x", 100, 10, []() -> std::string { _exit(3); }), "ended with status 3");
  EXPECT_ERROR(run_isolated("x", 100, 10, [] { return std::string(1 << 20, 'x'); }), "more than 100 bytes");
  EXPECT_ERROR(run_isolated("x", 100, 1,
                            []() -> std::string {
                              for (std::atomic<int> i{0};;) ++i;
                            }),
               "took more than 1 s");
}

}  // namespace
}  // namespace pare
