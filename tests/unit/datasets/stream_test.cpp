// Samples of varying width, sound in frames, states that a model hands on, inputs of one value.
#include <gtest/gtest.h>

#include "datasets/dataset.h"
#include "datasets/npy.h"
#include "datasets/state_feed.h"
#include "tests/unit/datasets/errors.h"
#include "tests/unit/datasets/temporary.h"

namespace pare {
namespace {

InputSpec input(const char* name, DType dtype, std::vector<Dim> dims) {
  return {name, dtype, Shape(std::move(dims))};
}

class Streams : public testing::Test {
 protected:
  std::string npy(const char* name, const Tensor& tensor) {
    write_npy(folder.file(name), tensor.view());
    return folder.file(name);
  }
  std::string clip(const char* name, const std::vector<std::int16_t>& values) {
    return npy(name, Tensor::from(DType::kI16, {static_cast<std::int64_t>(values.size())}, values));
  }
  TemporaryFolder folder;
};

std::vector<float> floats(const Tensor& tensor) {
  return std::vector<float>(tensor.as<float>(), tensor.as<float>() + tensor.size());
}

const InputSpec kLine = input("x", DType::kF32, {Dim::named("n"), Dim::of(1), Dim::of(2), Dim::named("w")});

// Pictures [4,2,3] with the value 10 n + 3 row + column + 1.
Tensor lines() {
  std::vector<std::uint8_t> values;
  for (int n = 0; n < 4; ++n)
    for (int i = 0; i < 6; ++i) values.push_back(static_cast<std::uint8_t>(10 * n + i + 1));
  return Tensor::from(DType::kU8, {4, 2, 3, 1}, values);
}

TEST_F(Streams, EachSampleIsCutToItsWidth) {
  const std::string path = npy("x.npy", lines());
  folder.write("l.json", R"({"width": [2, 2, 3, 1], "text": ["a", "b", "c", "d"]})");
  const std::string keys =
      ",width_from=" + folder.file("l.json") + ":width,labels=" + folder.file("l.json") + ":text";
  Dataset data(parse_data_argument(path + ":layout=nhwc_to_nchw,scale=1" + keys), {kLine});
  EXPECT_FALSE(data.inputs()[0].shape.dims[3].known());
  EXPECT_EQ(data.batch_end(0, 4, 4), 2);
  EXPECT_EQ(data.batch_end(0, 4, 1), 1);
  EXPECT_EQ(data.batch_end(2, 4, 4), 3);
  const Batch two = data.read(0, 2), three = data.read(2, 3), last = data.read(3, 4);
  EXPECT_EQ(two.inputs[0].dims(), (Dims{2, 1, 2, 2}));
  EXPECT_EQ(floats(two.inputs[0]), (std::vector<float>{1, 2, 4, 5, 11, 12, 14, 15}));
  EXPECT_EQ(floats(three.inputs[0]), (std::vector<float>{21, 22, 23, 24, 25, 26}));
  EXPECT_EQ(floats(last.inputs[0]), (std::vector<float>{31, 34}));
  EXPECT_EQ(two.texts, (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(data.has_labels());
  // Hashes are of what the model sees, so the same for any batches.
  DigestSum sum;
  for (const Batch* batch : {&two, &three, &last}) sum.add(data.hash_sum(*batch));
  DigestSum single;
  for (int i = 0; i < 4; ++i) single.add(data.sample_hash(i));
  EXPECT_EQ(sum, single);

  // Channels first, and other elements: the same cut.
  const Tensor planes =
      Tensor::from<float>(DType::kF32, {1, 2, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  Dataset nchw(parse_data_argument(npy("p.npy", planes) +
                                   ":layout=nchw,width_from=" + npy("w.npy", Tensor::ints({2}))),
               {input("x", DType::kF32, {Dim{}, Dim{}, Dim{}, Dim{}})});
  EXPECT_EQ(floats(nchw.read(0, 1).inputs[0]), (std::vector<float>{1, 2, 4, 5, 7, 8, 10, 11}));
}

TEST_F(Streams, WidthsThatCannotBe) {
  const std::string path = npy("x.npy", lines());
  const auto open = [&](const std::string& keys, const InputSpec& model = kLine) {
    Dataset data(parse_data_argument(path + ":scale=1," + keys), {model});
  };
  const std::string wide = npy("wide.npy", Tensor::ints({1, 2, 3, 4})),
                    none = npy("none.npy", Tensor::ints({0, 1, 1, 1}));
  EXPECT_ERROR(open("layout=nhwc_to_nchw,width_from=" + wide), "usage", "width_from gives 4 for sample 3",
               "3 wide");
  EXPECT_ERROR(open("layout=nhwc_to_nchw,width_from=" + none), "width_from gives 0 for sample 0");
  EXPECT_ERROR(open("width_from=" + wide), "usage", "width_from without a layout");
  folder.write("l.txt", "a\nb\nc\nd\n");
  EXPECT_ERROR(open("layout=nhwc_to_nchw,width_from=" + folder.file("l.txt")), "holds texts");
  const std::string some = npy("some.npy", Tensor::ints({3, 2, 3, 3}));
  EXPECT_ERROR(open("layout=nhwc_to_nchw,width_from=" + some,
                    input("x", DType::kF32, {Dim::named("n"), Dim::of(1), Dim::of(2), Dim::of(3)})),
               "wrong shape");
  EXPECT_ERROR(open("layout=nhwc_to_nchw,width_from=" + some,
                    input("x", DType::kF32, {Dim::of(2), Dim::of(1), Dim::of(2), Dim{}})),
               "unsupported", "the model takes 2 samples at once");
}

TEST_F(Streams, TextsAsLabels) {
  const std::string path = npy("x.npy", lines());
  folder.write("l.txt", "\xEF\xBB\xBFone\r\ntwo\n\nfour");
  Dataset data(parse_data_argument(path + ":labels=" + folder.file("l.txt")), {});
  EXPECT_EQ(data.read(0, 4).texts, (std::vector<std::string>{"one", "two", "", "four"}));
  folder.write("n.json", R"({"k": [4, 3, 2, 1], "mixed": [1, "a", 2, 3], "few": ["a"], "real": [1.5]})");
  Dataset numbers(parse_data_argument(path + ":labels=" + folder.file("n.json") + ":k"), {});
  EXPECT_EQ(numbers.read(1, 3).labels.to_ints(), (std::vector<std::int64_t>{3, 2}));
  const auto open = [&](const char* key) {
    Dataset wrong(parse_data_argument(path + ":labels=" + folder.file("n.json") + ":" + key), {});
  };
  EXPECT_ERROR(open("mixed"), "bad_file", "item 1 of 'mixed'", "another kind");
  EXPECT_ERROR(open("real"), "item 0 of 'real' is neither");
  EXPECT_ERROR(open("few"), "usage", "1 labels", "4 samples");
  EXPECT_ERROR(open("absent"), "bad_file", "'absent'");
}

TEST_F(Streams, SkippedSamplesAreNotThere) {
  const std::string path = npy("x.npy", lines()), labels = npy("l.npy", Tensor::ints({5, 6, 7, 8}));
  Dataset data(parse_data_argument(path + ":skip=1,samples=2,labels=" + labels), {});
  ASSERT_EQ(data.sample_count(), 2);
  EXPECT_EQ(data.read(0, 2).labels.to_ints(), (std::vector<std::int64_t>{6, 7}));
  Dataset mixed(parse_data_argument(path + ":skip=1,shuffle=4,labels=" + labels), {});
  std::vector<std::int64_t> seen = mixed.read(0, 3).labels.to_ints();
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, (std::vector<std::int64_t>{6, 7, 8}));
  EXPECT_ERROR(Dataset(parse_data_argument(path + ":skip=4"), {}), "usage", "skip is 4");
}

TEST_F(Streams, AlphaIsAFourthChannel) {
  const Tensor picture = Tensor::from<std::uint8_t>(DType::kU8, {1, 1, 2, 3}, {1, 2, 3, 4, 5, 6});
  const std::string path = npy("x.npy", picture);
  const InputSpec last = input("x", DType::kF32, {Dim{}, Dim::of(1), Dim::of(2), Dim::of(4)});
  Dataset nhwc(parse_data_argument(path + ":layout=nhwc,scale=2,alpha=0.5"), {last});
  EXPECT_EQ(floats(nhwc.read(0, 1).inputs[0]), (std::vector<float>{2, 4, 6, 0.5, 8, 10, 12, 0.5}));
  const InputSpec first = input("x", DType::kF32, {Dim{}, Dim::of(4), Dim::of(1), Dim::of(2)});
  Dataset nchw(parse_data_argument(path + ":layout=nhwc_to_nchw,scale=2,alpha=0.5,channels=bgr"), {first});
  EXPECT_EQ(floats(nchw.read(0, 1).inputs[0]), (std::vector<float>{6, 12, 4, 10, 2, 8, 0.5, 0.5}));
  EXPECT_ERROR(Dataset(parse_data_argument(npy("l.npy", lines()) + ":layout=nhwc,scale=1,alpha=1"), {kLine}),
               "usage", "alpha is a fourth channel", "1 channels");
  EXPECT_ERROR(Dataset(parse_data_argument(path + ":scale=1,alpha=1"), {last}), "alpha without a layout");
}

// --- sound

const InputSpec kFrame = input("x", DType::kF32, {Dim::named("n"), Dim::of(5)});

TEST_F(Streams, ClipsBecomeFramesWithWhatCameBefore) {
  clip("b.npy", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});  // three frames of 3, one value left over
  clip("a.npy", {20, 21, 22});
  clip("c.npy", {30, 31});  // not one frame
  folder.write("notes.txt", "not a clip");
  Dataset data(parse_data_argument(folder.file("") + ":frame=3,context=2,scale=1/2"), {kFrame});
  ASSERT_EQ(data.sample_count(), 4);
  const Batch all = data.read(0, 4);
  EXPECT_EQ(floats(all.inputs[0]), (std::vector<float>{0,   0,   10,  10.5, 11,      // a
                                                       0,   0,   0.5, 1,    1.5,     // b
                                                       1,   1.5, 2,   2.5,  3,       //
                                                       2.5, 3,   3.5, 4,    4.5}));  //
  EXPECT_EQ(data.batch_end(0, 4, 4), 4) << "without a state, frames are samples like others";
  Dataset some(parse_data_argument(folder.file("[bc]*.npy") + ":frame=3,context=2,scale=1"), {kFrame});
  EXPECT_EQ(some.sample_count(), 3);
  EXPECT_ERROR(Dataset(parse_data_argument(folder.file("c.npy") + ":frame=3,context=2,scale=1"), {kFrame}),
               "usage", "has a whole frame of 3 values");
  EXPECT_ERROR(Dataset(parse_data_argument(folder.file("z*.npy") + ":frame=3"), {kFrame}),
               "there is no clip");
  EXPECT_ERROR(Dataset(parse_data_argument(folder.file("") + ":kind=audio"), {kFrame}),
               "nothing says how long");
  npy("d.npy", Tensor::from<float>(DType::kF32, {3}, {1, 2, 3}));
  EXPECT_ERROR(Dataset(parse_data_argument(folder.file("") + ":frame=3"), {kFrame}), "d.npy' is float32",
               "int16");
  npy("d.npy", Tensor::ints({1, 2, 3}));
  EXPECT_ERROR(Dataset(parse_data_argument(folder.file("d.npy") + ":frame=3"), {kFrame}), "is int64 [3]");
}

std::string wav(const std::vector<std::int16_t>& values, std::uint32_t rate = 16000,
                std::uint16_t channels = 1, std::uint16_t bits = 16, std::uint16_t tag = 1) {
  std::string bytes = "RIFF";
  const auto number = [&](std::uint64_t value, int width) {
    for (int i = 0; i < width; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  };
  number(0, 4);
  bytes += "WAVELIST";
  number(3, 4);
  bytes += std::string("abc\0fmt ", 8);  // an odd chunk has a byte behind it
  number(16, 4);
  number(tag, 2), number(channels, 2), number(rate, 4), number(0, 4), number(0, 2), number(bits, 2);
  bytes += "data";
  number(values.size() * 2, 4);
  for (const std::int16_t value : values) number(static_cast<std::uint16_t>(value), 2);
  return bytes;
}

TEST_F(Streams, WavFiles) {
  const std::string path = folder.write("a.wav", wav({1, -2, 3, 4, 5, 6}));
  Dataset data(parse_data_argument(path + ":frame=3,context=2,scale=1"), {kFrame});
  EXPECT_EQ(floats(data.read(0, 2).inputs[0]), (std::vector<float>{0, 0, 1, -2, 3, -2, 3, 4, 5, 6}));
  const auto open = [&](const std::string& bytes, const std::string& keys = "") {
    Dataset wrong(parse_data_argument(folder.write("w.wav", bytes) + ":frame=3,context=2,scale=1" + keys),
                  {kFrame});
  };
  EXPECT_ERROR(open(wav({1, 2, 3}, 8000)), "usage", "8000 samples a second, 16000 are wanted");
  open(wav({1, 2, 3}, 8000), ",rate=8000");
  EXPECT_ERROR(open(wav({1, 2, 3}, 16000, 2)), "unsupported", "2 channels of 16 bits");
  EXPECT_ERROR(open(wav({1, 2, 3}, 16000, 1, 8)), "unsupported");
  EXPECT_ERROR(open(wav({1, 2, 3}, 16000, 1, 16, 7)), "unsupported", "format 7");
  const std::string whole = wav({1, 2, 3});
  for (std::size_t length = 0; length < whole.size();
       ++length) {  // nothing but an error, whatever is cut off
    const std::string thrown = error_of([&] { open(whole.substr(0, length)); });
    EXPECT_NE(thrown.find("bad_file"), std::string::npos) << length << ": " << thrown;
    if (length == whole.size() - 7) break;  // from here on samples are there, only fewer than a frame
  }
}

// --- states

// y = x + s, s_next = y + k: what came before adds up.
Graph counter(Dim batch) {
  Graph graph;
  const auto value = [&](const char* name, DType dtype, std::vector<Dim> dims) {
    Value v;
    v.name = v.origin = name;
    v.dtype = dtype;
    v.shape = Shape(std::move(dims));
    return graph.add_value(std::move(v));
  };
  const ValueId x = value("x", DType::kF32, {batch, Dim::of(1)}),
                s = value("s", DType::kF32, {batch, Dim::of(1)}), k = value("k", DType::kF32, {});
  graph.inputs = {x, s, k};
  const ValueId y = value("y", DType::kF32, {batch, Dim::of(1)}),
                next = value("next", DType::kF32, {batch, Dim::of(1)});
  for (const auto& [out, a, b] : {std::tuple{y, x, s}, std::tuple{next, y, k}}) {
    Node node;
    node.op = "Add";
    node.name = graph.value(out).name;
    node.in = {a, b};
    node.out = {out};
    graph.add_node(std::move(node));
  }
  graph.outputs = {next, y};
  return graph;
}

TEST_F(Streams, StatesGoFromRunToRun) {
  clip("a.npy", {1, 2, 3});
  clip("b.npy", {10, 20});
  const Graph graph = counter(Dim::named("batch"));
  const auto results = [&](const std::string& keys, std::int64_t from) {
    Dataset data(
        parse_data_argument(folder.file("") + ":frame=1,scale=1,feedback=[s:next],constants=[k:0.5]" + keys),
        model_inputs(graph));
    EXPECT_EQ(data.fixed_batch(), 1) << "the state has a row a sample";
    ThreadPool pool(1);
    Session session(std::make_shared<Graph>(graph), {&pool});
    StateFeed feed(data, graph);
    EXPECT_EQ(feed.results(), (std::vector<std::size_t>{1}));
    std::vector<float> all;
    for (std::int64_t i = from, end = 0; i < data.sample_count(); i = end) {
      end = data.batch_end(i, data.sample_count(), data.batch_size());
      const std::vector<Tensor> out = feed.run(session, data.read(i, end));
      EXPECT_EQ(out.size(), 1u) << "states are no results";
      all.push_back(out[0].as<float>()[0]);
    }
    return all;
  };
  EXPECT_EQ(results(",reset=per_file", 0), (std::vector<float>{1, 3.5, 7, 10, 30.5}));
  EXPECT_EQ(results("", 0), (std::vector<float>{1, 3.5, 7, 17.5, 38}));
  EXPECT_EQ(results(",reset=per_file", 2), (std::vector<float>{3, 10, 30.5})) << "a run may begin anywhere";
}

TEST_F(Streams, FeedbackThatCannotBe) {
  clip("a.npy", {1, 2, 3});
  const Graph graph = counter(Dim::named("batch"));
  const auto open = [&](const std::string& keys, const Graph& model) {
    Dataset data(parse_data_argument(folder.file("a.npy") + ":frame=1,scale=1," + keys), model_inputs(model));
    StateFeed feed(data, model);
    ThreadPool pool(1);
    Session session(std::make_shared<Graph>(model), {&pool});
    feed.run(session, data.read(0, data.batch_end(0, data.sample_count(), 2)));
  };
  EXPECT_ERROR(open("feedback=[t:next],constants=[k:0]", graph), "usage", "the model has no input 't'");
  EXPECT_ERROR(open("feedback=[s:nxt],constants=[k:0]", graph), "no output 'nxt'", "did you mean 'next'?");
  EXPECT_ERROR(open("feedback=[s:next,s:y],constants=[k:0]", graph), "'s' is fed twice");
  EXPECT_ERROR(open("feedback=[s:next],constants=[s:0]", graph), "'s' is fed twice");
  EXPECT_ERROR(open("feedback=[s:next,k:y]", graph), "takes all outputs");
  EXPECT_ERROR(open("feedback=[s:next],constants=[k:0],shuffle=1", graph), "shuffle and feedback");
  EXPECT_ERROR(open("feedback=[s:next]", graph), "nothing in it feeds", "constants=");
  EXPECT_ERROR(open("feedback=[s:next],constants=[k:a]", graph), "'a' is not a number");
  EXPECT_ERROR(open("feedback=[s]", graph), "'s' is no pair", "model_input:model_output");
  // A state of one stream, though the frames go in two at a time: it comes back as two rows.
  Graph fixed = counter(Dim::named("batch"));
  Value& state = fixed.value(fixed.inputs[1]);
  state.shape = Shape({Dim::of(1), Dim::of(1)});
  EXPECT_ERROR(open("feedback=[s:next],constants=[k:0]", fixed), "usage", "went in as float32 [1,1]",
               "comes back as float32 [2,1]");
}

TEST_F(Streams, ConstantsTakeTheModelsType) {
  clip("a.npy", {1, 2, 3});
  const auto value = [&](DType type, const char* number) {
    Dataset data(parse_data_argument(folder.file("a.npy") + ":frame=1,scale=1,constants=[sr:" + number + "]"),
                 {input("x", DType::kF32, {Dim{}, Dim::of(1)}), input("sr", type, {})});
    return data.read(0, 1).inputs[1];
  };
  EXPECT_EQ(*value(DType::kI64, "16000").as<std::int64_t>(), 16000);
  EXPECT_EQ(*value(DType::kU8, "200").as<std::uint8_t>(), 200);
  EXPECT_EQ(*value(DType::kF64, "1/4").as<double>(), 0.25);
  EXPECT_EQ(value(DType::kI64, "1").dims(), Dims{});
  EXPECT_ERROR(value(DType::kU8, "300"), "usage", "'sr' is uint8, which cannot hold 300");
  EXPECT_ERROR(value(DType::kI64, "0.5"), "cannot hold 0.5");
}

}  // namespace
}  // namespace pare
