#include "datasets/dataset.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "datasets/npy.h"
#include "datasets/random.h"
#include "tests/unit/datasets/errors.h"
#include "tests/unit/datasets/temporary.h"
#include "tests/unit/test_paths.h"

namespace pare {
namespace {

InputSpec input(const char* name, DType dtype, std::vector<Dim> dims) {
  return {name, dtype, Shape(std::move(dims))};
}

const InputSpec kImage =
    input("image", DType::kF32, {Dim::named("batch"), Dim::of(3), Dim::of(2), Dim::of(2)});

// Five pictures of 2x2 pixels, three channels last; element i of the array is 7i mod 256.
Tensor pictures() {
  std::vector<std::uint8_t> values(5 * 12);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(i * 7);
  return Tensor::from(DType::kU8, {5, 2, 2, 3}, values);
}

class Files : public testing::Test {
 protected:
  DatasetSpec npy(const Tensor& tensor, const std::string& keys = "", const char* name = "x.npy") {
    write_npy(folder.file(name), tensor.view());
    return parse_data_argument(folder.file(name) + (keys.empty() ? "" : ":" + keys));
  }
  TemporaryFolder folder;
};

using DatasetFiles = Files;

TEST_F(DatasetFiles, ScalesAndTransposesAsDocumented) {
  const Tensor raw = pictures();
  Dataset data(npy(raw, "layout=nhwc_to_nchw,scale=1/255,mean=[0.1,0.2,0.3],std=[0.5,0.25,3]"), {kImage});
  ASSERT_EQ(data.sample_count(), 5);
  const Batch batch = data.read(1, 4);
  ASSERT_EQ(batch.inputs.size(), 1u);
  EXPECT_EQ(batch.inputs[0].dims(), (Dims{3, 3, 2, 2}));
  const float scale = static_cast<float>(1.0 / 255.0), mean[] = {0.1f, 0.2f, 0.3f},
              std[] = {0.5f, 0.25f, 3.0f};
  for (int n = 0; n < 3; ++n)
    for (int c = 0; c < 3; ++c)
      for (int p = 0; p < 4; ++p) {
        volatile float product = static_cast<float>(raw.as<std::uint8_t>()[(n + 1) * 12 + p * 3 + c]) * scale;
        volatile float difference = product - mean[c];
        EXPECT_EQ(batch.inputs[0].as<float>()[(n * 3 + c) * 4 + p], difference / std[c]);
      }
}

TEST_F(DatasetFiles, EveryTypeGivesTheSameArithmetic) {
  // The same numbers stored in each type, through the byte table, the row loops and both directions.
  const std::vector<std::int64_t> numbers = {0, 1, 2, 3, 5, 7, 11, 13, 100, 101, 102, 127};
  std::vector<float> expected;
  for (const char* layout : {"nhwc", "nchw", "nhwc_to_nchw", "nchw_to_nhwc"}) {
    expected.clear();
    for (const DType type : {DType::kF32, DType::kU8, DType::kI8, DType::kU16, DType::kI16, DType::kI32,
                             DType::kU32, DType::kI64, DType::kU64, DType::kF64, DType::kF16}) {
      Tensor t = Tensor::allocate(type, {1, 3, 2, 2});
      const std::string word = layout;
      if (word.starts_with("nhwc")) t = t.reshaped({1, 2, 2, 3});
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const std::int64_t v = numbers[i];
        auto* at = const_cast<std::byte*>(t.as<std::byte>()) + i * static_cast<std::size_t>(bits(type) / 8);
        const float f = static_cast<float>(v);
        const double d = static_cast<double>(v);
        const auto half = static_cast<_Float16>(f);
        if (type == DType::kF32)
          std::memcpy(at, &f, 4);
        else if (type == DType::kF64)
          std::memcpy(at, &d, 8);
        else if (type == DType::kF16)
          std::memcpy(at, &half, 2);
        else
          std::memcpy(at, &v, static_cast<std::size_t>(bits(type) / 8));
      }
      const InputSpec wanted = input("image", DType::kF32, {Dim::named("n"), Dim{}, Dim{}, Dim{}});
      Dataset data(npy(t, std::string("scale=0.37,mean=[1,2,3],std=[7,0.3,1],layout=") + layout), {wanted});
      const Batch batch = data.read(0, 1);
      const std::vector<float> got(batch.inputs[0].as<float>(), batch.inputs[0].as<float>() + 12);
      if (expected.empty()) expected = got;
      EXPECT_EQ(got, expected) << name(type) << " " << layout;
    }
  }
}

TEST_F(DatasetFiles, BgrReversesAndChannelStatisticsFollowTheModelsOrder) {
  Dataset data(npy(pictures(), "layout=nhwc_to_nchw,scale=1,mean=[1,2,3],channels=bgr"), {kImage});
  const Batch batch = data.read(0, 1);
  const float* x = batch.inputs[0].as<float>();
  EXPECT_EQ(x[0], 14.0f - 1);  // blue of the first pixel, stored third
  EXPECT_EQ(x[4], 7.0f - 2);
  EXPECT_EQ(x[8], 0.0f - 3);
}

TEST_F(DatasetFiles, FloatsPassWithoutACopy) {
  const Tensor floats = Tensor::from<float>(DType::kF32, {3, 2}, {1, 2, 3, 4, 5, 6});
  Dataset data(npy(floats), {input("x", DType::kF32, {Dim::named("n"), Dim::of(2)})});
  const Batch whole = data.read(0, 3), part = data.read(1, 3);
  EXPECT_TRUE(equal_bytes(whole.inputs[0], floats));
  EXPECT_EQ(part.inputs[0].data(), whole.inputs[0].as<float>() + 2);
}

TEST_F(DatasetFiles, SampleBytesDependOnNothingElse) {
  ThreadPool pool(3);
  const std::string keys = "layout=nhwc_to_nchw,scale=1/255,shuffle=11";
  Dataset data(npy(pictures(), keys), {kImage});
  DigestSum whole, singles, threaded;
  whole = data.hash_sum(data.read(0, 5));
  for (int i = 4; i >= 0; --i) singles.add(data.sample_hash(i));
  threaded.add(data.hash_sum(data.read(3, 5, &pool), &pool));
  threaded.add(data.hash_sum(data.read(0, 3, &pool), &pool));
  EXPECT_EQ(whole, singles);
  EXPECT_EQ(whole, threaded);
  Dataset ordered(npy(pictures(), "layout=nhwc_to_nchw,scale=1/255"), {kImage});
  EXPECT_EQ(ordered.hash_sum(ordered.read(0, 5)), whole) << "the order of the samples must not matter";
  Dataset scaled(npy(pictures(), "layout=nhwc_to_nchw,scale=1/256"), {kImage});
  EXPECT_NE(scaled.hash_sum(scaled.read(0, 5)), whole) << "what the model sees must matter";
}

TEST_F(DatasetFiles, SamplesAndShuffle) {
  Tensor numbers = Tensor::allocate(DType::kF32, {100, 1});
  for (int i = 0; i < 100; ++i) numbers.mut<float>()[i] = static_cast<float>(i + 1);
  const InputSpec x = input("x", DType::kF32, {Dim::named("n"), Dim::of(1)});
  Dataset first(npy(numbers, "samples=7"), {x});
  EXPECT_EQ(first.sample_count(), 7);
  EXPECT_EQ(first.read(6, 7).inputs[0].as<float>()[0], 7.0f);
  Dataset more(npy(numbers, "samples=1000"), {x});
  EXPECT_EQ(more.sample_count(), 100);
  Dataset mixed(npy(numbers, "samples=50,shuffle=1"), {x}), again(npy(numbers, "samples=50,shuffle=1"), {x});
  const Batch a = mixed.read(0, 50), b = again.read(0, 50);
  EXPECT_TRUE(equal_bytes(a.inputs[0], b.inputs[0]));
  std::vector<float> seen(a.inputs[0].as<float>(), a.inputs[0].as<float>() + 50);
  EXPECT_FALSE(std::is_sorted(seen.begin(), seen.end()));
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
  // The permutation is part of the contract: recipes with a seed must select the same samples for ever.
  EXPECT_EQ(shuffled_rows(8, 1), (std::vector<std::int64_t>{4, 3, 2, 7, 5, 6, 0, 1}));
}

TEST_F(DatasetFiles, LabelsGoWithTheirSamples) {
  const Tensor labels = Tensor::from<std::uint8_t>(DType::kU8, {5}, {3, 1, 4, 1, 5});
  write_npy(folder.file("labels.npy"), labels.view());
  const std::string keys = "layout=nhwc_to_nchw,scale=1,labels=" + folder.file("labels.npy");
  Dataset data(npy(pictures(), keys), {kImage});
  EXPECT_EQ(data.read(1, 4).labels.to_ints(), (std::vector<std::int64_t>{1, 4, 1}));
  folder.write("labels.csv", "name,label\na,9\nb,8\n\"c,d\",7\n,6\n,5\n");
  Dataset table(npy(pictures(), "layout=nhwc_to_nchw,scale=1,labels=" + folder.file("labels.csv")), {kImage});
  EXPECT_EQ(table.read(0, 5).labels.to_ints(), (std::vector<std::int64_t>{9, 8, 7, 6, 5}));

  write_npy(folder.file("labels.npy"), Tensor::from<std::uint8_t>(DType::kU8, {3}, {1, 2, 3}).view());
  EXPECT_ERROR(Dataset(npy(pictures(), keys), {kImage}), "usage", "3 labels", "5 samples");
  write_npy(folder.file("labels.npy"), Tensor::from<float>(DType::kF32, {5}, {1, 2, 3, 4, 5}).view());
  EXPECT_ERROR(Dataset(npy(pictures(), keys), {kImage}), "are float32, not integers");
  folder.write("labels.csv", "name,label\na,9\nb,x\n");
  EXPECT_ERROR(
      Dataset(npy(pictures(), "layout=nhwc_to_nchw,scale=1,labels=" + folder.file("labels.csv")), {kImage}),
      "bad_file", "labels.csv:3", "'x' is no class number");
}

TEST_F(DatasetFiles, SaysWhatDoesNotFit) {
  const auto open = [&](const Tensor& tensor, const std::string& keys, const std::vector<InputSpec>& model) {
    Dataset data(npy(tensor, keys), model);
  };
  // Raw pixels without the keys that make them numbers.
  EXPECT_ERROR(open(pictures(), "", {kImage}), "usage", "raw uint8 pixels", "[N,2,2,3]", "[batch,3,2,2]",
               "add layout=nhwc_to_nchw,scale=1/255");
  EXPECT_ERROR(open(pictures(), "layout=nhwc_to_nchw", {kImage}), "raw uint8 pixels", "add scale=1/255");
  EXPECT_ERROR(open(pictures(), "scale=1/255", {kImage}), "raw uint8 pixels", "add layout=nhwc_to_nchw (");
  // A layout that does not fit, in words, with both shapes.
  EXPECT_ERROR(open(pictures(), "layout=nhwc,scale=1", {kImage}), "wrong shape", "[N,2,2,3]",
               "[batch,3,2,2]");
  const Tensor floats = Tensor::allocate(DType::kF32, {4, 2, 2, 3});
  EXPECT_ERROR(open(floats, "", {kImage}), "wrong shape", "[N,2,2,3]", "[batch,3,2,2]",
               "add layout=nhwc_to_nchw");
  EXPECT_ERROR(open(Tensor::allocate(DType::kF32, {3, 2, 2}), "", {kImage}), "wrong shape", "[N,2,2]",
               "one dimension less");
  EXPECT_ERROR(open(Tensor::allocate(DType::kF32, {4, 3, 9, 9}), "", {kImage}), "[N,3,9,9]", "[batch,3,2,2]");
  // Types.
  EXPECT_ERROR(open(Tensor::allocate(DType::kF64, {4, 3, 2, 2}), "", {kImage}), "wrong type", "float64",
               "float32", "add scale=1");
  EXPECT_ERROR(open(Tensor::allocate(DType::kI32, {4, 7}), "", {input("ids", DType::kI64, {Dim{}, Dim{}})}),
               "wrong type", "int32", "int64", "save the data as int64");
  // Names.
  EXPECT_ERROR(open(floats, "input=imag", {kImage}), "no input 'imag'", "did you mean 'image'?");
  const InputSpec mask = input("mask", DType::kF32, {Dim{}, Dim::of(1)});
  EXPECT_ERROR(open(floats, "", {kImage, mask}), "nothing in it feeds the model's input 'image'", ".npz");
  // Impossible combinations.
  EXPECT_ERROR(open(floats, "mean=[1,2]", {kImage}), "'mean' has 2 numbers", "layout");
  EXPECT_ERROR(open(floats, "layout=nhwc_to_nchw,mean=[1,2]", {kImage}), "2 numbers", "3 channels");
  EXPECT_ERROR(open(floats, "resize=4", {kImage}), "resize and crop are for image folders");
  EXPECT_ERROR(open(floats, "channels=bgr", {kImage}), "without a layout");
  EXPECT_ERROR(open(Tensor::allocate(DType::kF32, {0, 3, 2, 2}), "", {kImage}), "there are no samples");
  EXPECT_ERROR(open(floats, "kind=synthetic", {kImage}), "generated data is only for");
  const InputSpec fixed = input("x", DType::kF32, {Dim::of(3), Dim::of(2), Dim::of(2), Dim::of(3)});
  EXPECT_ERROR(open(floats, "", {fixed}), "takes 3 samples at once", "add samples=3");
  EXPECT_ERROR(Dataset(parse_data_argument("/nowhere/x.npy"), {kImage}), "bad_file", "/nowhere/x.npy");
  EXPECT_ERROR(Dataset(DatasetSpec(), {kImage}), "usage", "the data set has no path");
}

TEST_F(DatasetFiles, FixedBatchOfTheModel) {
  const InputSpec fixed = input("x", DType::kF32, {Dim::of(2), Dim::of(3)});
  Dataset data(npy(Tensor::allocate(DType::kF32, {6, 3})), {fixed});
  EXPECT_EQ(data.fixed_batch(), 2);
  EXPECT_EQ(data.batch_size(), 2);
}

TEST_F(DatasetFiles, NonfiniteValuesAreCountedOnceAndRefused) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  const Tensor bad = Tensor::from<float>(DType::kF32, {4, 2}, {1, nan, 2, 3, -inf, inf, 0, nan});
  const InputSpec x = input("x", DType::kF32, {Dim{}, Dim::of(2)});
  Dataset strict(npy(bad), {x});
  EXPECT_ERROR(strict.read(0, 4), "bad_file", "'x' has 1 NaN and 0 infinite values in sample 0", "0 allowed",
               "max_nonfinite");
  Dataset open(npy(bad, "max_nonfinite=4"), {x});
  open.read(0, 4);
  open.read(0, 2);  // read again: not counted again
  open.read(2, 4);
  EXPECT_EQ(open.nonfinite().nan, 2);
  EXPECT_EQ(open.nonfinite().inf, 2);
  EXPECT_EQ(open.nonfinite().samples, 3);
  // The sum over batches decides, whatever the batches are.
  for (const int batch : {1, 2, 4}) {
    Dataset three(npy(bad, "max_nonfinite=3"), {x});
    EXPECT_ERROR(for (int i = 0; i < 4; i += batch) three.read(i, i + batch), "4 so far, 3 allowed");
  }
}

TEST_F(DatasetFiles, AnAllZeroSetIsFound) {
  Tensor zeros = Tensor::allocate(DType::kU8, {4, 2, 2, 3});
  std::memset(zeros.mut<std::byte>(), 0, 48);
  const std::string keys =
      "layout=nhwc_to_nchw,scale=1/255,mean=[0.5],std=[0.5]";  // -1 everywhere for the model
  Dataset data(npy(zeros, keys), {kImage});
  data.read(0, 4);
  EXPECT_ERROR(data.refuse_all_zero(), "usage", "'image' is zero in all samples");
  zeros.mut<std::uint8_t>()[47] = 1;
  Dataset other(npy(zeros, keys, "y.npy"), {kImage});
  other.read(0, 3);
  EXPECT_ERROR(other.refuse_all_zero(), "is zero");
  other.read(3, 4);
  other.refuse_all_zero();
}

TEST(DatasetShared, FashionImages) {
  if (!has_shared_files()) GTEST_SKIP() << "no shared data beside the checkout";
  const InputSpec image =
      input("image", DType::kF32, {Dim::named("batch"), Dim::of(1), Dim::of(28), Dim::of(28)});
  Dataset data(parse_data_argument(shared_path("data/fashion/fashion_calibration_images.npy") +
                                   ":layout=nhwc_to_nchw,scale=1/255,mean=0.2860,std=0.3530,labels=" +
                                   shared_path("data/fashion/fashion_calibration_labels.npy")),
               {image});
  EXPECT_EQ(data.sample_count(), 4096);
  const Batch batch = data.read(0, 512);
  EXPECT_EQ(batch.inputs[0].dims(), (Dims{512, 1, 28, 28}));
  EXPECT_EQ(batch.labels.size(), 512);
}

TEST(Synthetic, FillsKnownShapes) {
  const std::vector<InputSpec> model = {kImage,
                                        input("ids", DType::kI64, {Dim::named("n"), Dim::named("length")})};
  EXPECT_ERROR(synthetic_inputs(model, 2, {}, 1), "'ids'", "'length' is not known", "--input-shape");
  EXPECT_ERROR(synthetic_inputs(model, 2, {{"image", {2, 3}}}, 1), "[2,3]", "[batch,3,2,2]");
  const std::vector<Tensor> tensors = synthetic_inputs(model, 2, {{"ids", {2, 5}}}, 1);
  EXPECT_EQ(tensors[0].dims(), (Dims{2, 3, 2, 2}));
  EXPECT_EQ(tensors[1].dims(), (Dims{2, 5}));
  for (const std::int64_t id : tensors[1].to_ints()) EXPECT_TRUE(id == 0 || id == 1);
  double sum = 0, square = 0;
  const std::vector<Tensor> many =
      synthetic_inputs({input("x", DType::kF32, {Dim{}, Dim::of(100000)})}, 1, {}, 5);
  for (int i = 0; i < 100000; ++i) {
    sum += many[0].as<float>()[i];
    square += many[0].as<float>()[i] * many[0].as<float>()[i];
  }
  EXPECT_NEAR(sum / 1e5, 0, 5 / std::sqrt(1e5));  // five standard errors
  EXPECT_NEAR(square / 1e5, 1, 5 * std::sqrt(2.0 / 1e5));
}

}  // namespace
}  // namespace pare
