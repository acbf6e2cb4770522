#include "calib/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "calib/collector.h"
#include "engine/base/mapped_file.h"
#include "tests/unit/calib/values.h"
#include "tests/unit/datasets/errors.h"
#include "tests/unit/datasets/temporary.h"

namespace pare {
namespace {

const std::string kGraph(64, 'a');

// Statistics of a made-up model: three values, of which each sample gives some numbers.
class Model {
 public:
  explicit Model(int threads, bool by_channel = false) : pool_(threads), collector_(pool_) {
    index_[0] = collector_.add("b/second", 1, by_channel);
    index_[1] = collector_.add("a/first");
    index_[2] = collector_.add("c/unseen");
  }
  // Samples begin .. end-1 in one batch.
  void run(const std::vector<int>& samples) {
    std::vector<float> values;
    for (const int s : samples) {
      std::vector<float> one =
          normal_values(60, static_cast<std::uint64_t>(s), 0.01f * static_cast<float>(s + 1));
      if (s == 7) one[3] = std::nanf("");
      if (s == 9) one[4] = -std::numeric_limits<float>::infinity();
      values.insert(values.end(), one.begin(), one.end());
      Sha256 hash;
      hash.update_number(static_cast<std::uint64_t>(s));
      hash_.add(hash.finish());
    }
    const auto n = static_cast<std::int64_t>(samples.size());
    collector_.collect(index_[0], {DType::kF32, {n, 3, 20}, values.data()});
    for (float& v : values) v *= 1000;
    collector_.collect(index_[1], {DType::kF32, {n, 60}, values.data()});
    samples_ += n;
  }
  Statistics statistics() const {
    Statistics s;
    s.graph_hash = kGraph;
    s.data_hash = hash_;
    s.samples = samples_;
    s.tensors = collector_.stats();
    return s;
  }

 private:
  ThreadPool pool_;
  Collector collector_;
  int index_[3];
  DigestSum hash_;
  std::int64_t samples_ = 0;
};

Statistics run(std::vector<int> samples, std::size_t batch, int threads, bool by_channel = false) {
  Model model(threads, by_channel);
  for (std::size_t i = 0; i < samples.size(); i += batch)
    model.run({samples.begin() + static_cast<std::ptrdiff_t>(i),
               samples.begin() + static_cast<std::ptrdiff_t>(std::min(samples.size(), i + batch))});
  return model.statistics();
}

std::vector<int> numbers(int from, int until) {
  std::vector<int> all;
  for (int i = from; i < until; ++i) all.push_back(i);
  return all;
}

std::string bytes_of(const std::string& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(StatisticsFile, HoldsWhatWasSaved) {
  const TemporaryFolder folder;
  const Statistics s = run(numbers(0, 20), 7, 1);
  save_statistics(s, folder.file("s.h5"));
  EXPECT_TRUE(load_statistics(folder.file("s.h5")) == s);
  EXPECT_EQ(s.nan_count(), 2u);
  EXPECT_EQ(s.inf_count(), 2u);
  EXPECT_EQ(s.at("a/first").total, 1200u);
  EXPECT_EQ(s.at("b/second").channel_amax.size(), 3u);
  EXPECT_FALSE(s.at("c/unseen").seen());
  EXPECT_ERROR(s.at("a/frist1"), "usage", "no tensor 'a/frist1'");
  const Statistics by_channel = run(numbers(0, 20), 7, 1, true);
  save_statistics(by_channel, folder.file("c.h5"));
  EXPECT_TRUE(load_statistics(folder.file("c.h5")) == by_channel);
  EXPECT_EQ(by_channel.at("b/second").channels.size(), 3u);
  EXPECT_FALSE(by_channel == s);
  Statistics none;
  none.graph_hash = kGraph;
  save_statistics(none, folder.file("none.h5"));
  EXPECT_TRUE(load_statistics(folder.file("none.h5")) == none);
}

// The matrix of DESIGN.md: batches, order, threads and merging leave the bytes of the file alone.
class StatisticsBytes : public testing::TestWithParam<bool> {};

TEST_P(StatisticsBytes, AreTheSameHoweverTheyWereCollected) {
  const bool by_channel = GetParam();
  const TemporaryFolder folder;
  const std::string file = folder.file("s.h5");
  save_statistics(run(numbers(0, 600), 64, 1, by_channel), file);
  const std::string expected = bytes_of(file);
  std::vector<int> mixed = numbers(0, 600);
  SplitMix random(5);
  for (std::size_t i = mixed.size(); i > 1; --i) std::swap(mixed[i - 1], mixed[random.below(i)]);
  for (const std::size_t batch : {1, 7, 64, 512})
    for (const int threads : {1, 2})
      for (const bool shuffled : {false, true}) {
        save_statistics(run(shuffled ? mixed : numbers(0, 600), batch, threads, by_channel), file);
        EXPECT_TRUE(bytes_of(file) == expected) << batch << " " << threads << " " << shuffled;
      }
  const Statistics a = run(numbers(0, 250), 64, 2, by_channel), b = run(numbers(250, 600), 7, 1, by_channel);
  save_statistics(merge(a, b), file);
  EXPECT_TRUE(bytes_of(file) == expected);
  save_statistics(merge(b, a), file);
  EXPECT_TRUE(bytes_of(file) == expected);
  // Parts of parts, through files.
  Statistics sum = run(numbers(0, 1), 1, 1, by_channel);
  for (const auto& [from, until] : {std::pair{1, 8}, std::pair{8, 300}, std::pair{300, 600}}) {
    save_statistics(run(numbers(from, until), 13, 2, by_channel), file);
    sum = merge(sum, load_statistics(file));
  }
  save_statistics(sum, file);
  EXPECT_TRUE(bytes_of(file) == expected);
}

INSTANTIATE_TEST_SUITE_P(Parts, StatisticsBytes, testing::Bool());

TEST(StatisticsMerge, RefusesWhatDoesNotBelongTogether) {
  const Statistics a = run(numbers(0, 10), 5, 1), b = run(numbers(10, 20), 5, 1);
  EXPECT_ERROR(merge(a, a), "usage", "both statistics come from the same 10 samples");
  Statistics other = b;
  other.graph_hash = std::string(64, 'b');
  EXPECT_ERROR(merge(a, other), "usage", "different models", "aaaaaaaaaaaa", "bbbbbbbbbbbb");
  EXPECT_ERROR(merge(a, run(numbers(10, 20), 5, 1, true)), "usage", "'b/second' has 0 channel histograms",
               "and 3");
  other = b;
  other.tensors.pop_back();
  EXPECT_ERROR(merge(a, other), "one part watched 3 tensors, the other 2");
  other = b;
  other.tensors[0].name = "x";
  EXPECT_ERROR(merge(a, other), "different tensors", "'x'");
}

TEST(StatisticsStale, IsRefused) {
  const Statistics a = run(numbers(0, 10), 5, 1);
  refuse_stale(a, kGraph, "s.h5");
  EXPECT_ERROR(refuse_stale(a, std::string(64, 'c'), "s.h5"), "usage", "another model", "s.h5",
               "calibrate again");
  refuse_other_data(a, a.data_hash, 10, "s.h5");
  EXPECT_ERROR(refuse_other_data(a, DigestSum(), 10, "s.h5"), "usage", "other data", "calibrate again");
  EXPECT_ERROR(refuse_other_data(a, a.data_hash, 11, "s.h5"), "asked for are 11");
}

TEST(StatisticsFile, HostileFilesAreErrors) {
  const TemporaryFolder folder;
  save_statistics(run(numbers(0, 4), 4, 1, true), folder.file("s.h5"));
  const std::string whole = bytes_of(folder.file("s.h5"));
  const auto load = [&](const std::string& bytes) { load_statistics(folder.write("bad.h5", bytes)); };
  for (std::size_t n = 0; n < whole.size(); n += 1 + whole.size() / 40)
    EXPECT_ERROR(load(whole.substr(0, n)), "bad_file: ", "bad.h5");
  // Any byte may be wrong; what comes is the same statistics (a byte that means nothing) or a clear error.
  SplitMix random(9);
  const Statistics expected = load_statistics(folder.file("s.h5"));
  int refused = 0;
  for (int i = 0; i < 120; ++i) {
    std::string bytes = whole;
    // Half of the places in the first kilobyte, where the structure is.
    bytes[random.below(i % 2 ? bytes.size() : std::min<std::size_t>(bytes.size(), 1024))] ^=
        static_cast<char>(1 + random.below(255));
    const std::string thrown = error_of([&] {
      const Statistics got = load_statistics(folder.write("bad.h5", bytes));
      // Names and hashes are free text; all else is tied together.
      for (std::size_t t = 0; t < got.tensors.size() && t < expected.tensors.size(); ++t)
        if (got.tensors[t].name == expected.tensors[t].name &&
            got.tensors[t].exponent != expected.tensors[t].exponent)
          ADD_FAILURE() << "believed a damaged width";
    });
    if (thrown == "nothing was thrown") continue;
    ++refused;
    EXPECT_TRUE(thrown.starts_with("bad_file: ") || thrown.starts_with("unsupported: ")) << thrown;
  }
  EXPECT_GT(refused, 20);
  EXPECT_ERROR(load_statistics(folder.file("nowhere.h5")), "bad_file", "nowhere.h5");
  EXPECT_ERROR(load("not an HDF5 file at all"), "bad_file", "bad.h5");
}

TEST(StatisticsFile, SelfContradictionIsRefused) {
  const TemporaryFolder folder;
  const Statistics good = run(numbers(0, 4), 4, 1);
  const auto with = [&](auto change) {
    Statistics s = good;
    change(s.tensors[0]);
    save_statistics(s, folder.file("s.h5"));
    load_statistics(folder.file("s.h5"));
  };
  EXPECT_ERROR(with([](TensorStats& t) { ++t.total; }), "bad_file", "'a/first'", "do not add up");
  EXPECT_ERROR(with([](TensorStats& t) { ++t.exponent; }), "the width of the bins");
  EXPECT_ERROR(with([](TensorStats& t) { t.max = INFINITY; }), "the range");
  EXPECT_ERROR(with([](TensorStats& t) { t.bins[4095] += 1, ++t.total; }), "a bin above the largest value");
  EXPECT_ERROR(with([](TensorStats& t) { t.bins[0] = ~std::uint64_t{0}; }), "counts");
  EXPECT_ERROR(with([](TensorStats& t) { t.channel_amax = {1e30f}; }), "a channel's largest value");
  EXPECT_ERROR(with([](TensorStats& t) { t.name = "z"; }), "not sorted");
  const Statistics by_channel = run(numbers(0, 20), 7, 1, true);
  const auto with_channel = [&](auto change) {
    Statistics s = by_channel;
    change(s.tensors[1].channels);
    save_statistics(s, folder.file("c.h5"));
    load_statistics(folder.file("c.h5"));
  };
  using Channels = std::vector<ChannelStats>;
  EXPECT_ERROR(with_channel([](Channels& c) { ++c[1].total; }), "bad_file", "'b/second'", "do not add up");
  EXPECT_ERROR(with_channel([](Channels& c) { ++c[0].exponent; }), "the width of the bins");
  EXPECT_ERROR(with_channel([](Channels& c) { c.pop_back(); }), "its channels do not add up");
  EXPECT_ERROR(with_channel([](Channels& c) { c[0].bins[127] += 1, ++c[0].total; }), "bad_file");
}

TEST(StatisticsFile, FullDiskLeavesNothing) {
  const TemporaryFolder folder;
  set_test_disk_space(1000);
  EXPECT_ERROR(save_statistics(run(numbers(0, 4), 4, 1), folder.file("s.h5")), "device");
  set_test_disk_space(-1);
  EXPECT_FALSE(path_exists(folder.file("s.h5")));
}

}  // namespace
}  // namespace pare
