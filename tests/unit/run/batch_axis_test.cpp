// Which graphs keep their samples apart, and that parts of a batch give what the whole one gives.
#include "engine/run/batch_axis.h"

#include <gtest/gtest.h>

#include <cstring>

#include "engine/base/error.h"
#include "engine/ir/schema.h"
#include "engine/run/session.h"

namespace pare {
namespace {

using Ints = std::vector<std::int64_t>;

// Values by name, one operator a call.
class Builder {
 public:
  Graph graph;

  ValueId input(std::vector<Dim> dims, DType dtype = DType::kF32) {
    Value value;
    value.name = "x";
    value.dtype = dtype;
    value.shape = Shape(std::move(dims));
    graph.inputs.push_back(graph.add_value(value));
    return graph.inputs.back();
  }
  ValueId floats(Dims dims) {
    Tensor t = Tensor::allocate(DType::kF32, std::move(dims));
    for (std::int64_t i = 0; i < t.size(); ++i) t.mut<float>()[i] = 0.01f * static_cast<float>(i % 37) - 0.2f;
    return graph.add_constant("c", t);
  }
  ValueId ints(const Ints& values) { return graph.add_constant("i", Tensor::ints(values)); }
  ValueId op(const char* name, std::vector<ValueId> in, Attributes attrs = {}, DType dtype = DType::kF32) {
    Value value;
    value.name = name;
    value.dtype = dtype;
    Node node;
    node.op = name;
    node.name = name;
    node.in = std::move(in);
    node.attrs = std::move(attrs);
    node.out = {graph.add_value(value)};
    const ValueId out = node.out[0];
    graph.add_node(std::move(node));
    return out;
  }
  const Graph& finish(ValueId output) {
    graph.outputs = {output};
    infer_shapes(graph);
    verify(graph);
    return graph;
  }
};

const Dim kN = Dim::named("n");

struct Case {
  const char* what;
  bool apart;
  ValueId (*build)(Builder&);
};

const Case kCases[] = {
    {"relu", true,
     [](Builder& b) {
       return b.op("Relu", {b.input({kN, Dim::of(6)})});
     }},
    {"no named first size", false,
     [](Builder& b) {
       return b.op("Relu", {b.input({Dim::of(4), kN})});
     }},
    {"bias", true,
     [](Builder& b) {
       return b.op("Add", {b.input({kN, Dim::of(6)}), b.floats({6})});
     }},
    {"residual", true,
     [](Builder& b) {
       const ValueId x = b.input({kN, Dim::of(6)});
       return b.op("Add", {b.op("Relu", {x}), x});
     }},
    {"softmax over features", true,
     [](Builder& b) {
       return b.op("Softmax", {b.input({kN, Dim::of(6)})}, {{"axis", std::int64_t{-1}}});
     }},
    {"softmax over samples", false,
     [](Builder& b) {
       return b.op("Softmax", {b.input({kN, Dim::of(6)})}, {{"axis", std::int64_t{0}}});
     }},
    {"mean over samples", false,
     [](Builder& b) {
       const ValueId x = b.input({kN, Dim::of(6)});
       return b.op("Sub", {x, b.op("ReduceMean", {x, b.ints({0})})});
     }},
    {"mean over features", true,
     [](Builder& b) {
       const ValueId x = b.input({kN, Dim::of(6)});
       return b.op("Sub", {x, b.op("ReduceMean", {x, b.ints({1})})});
     }},
    {"weights", true,
     [](Builder& b) {
       return b.op("MatMul", {b.input({kN, Dim::of(6)}), b.floats({6, 3})});
     }},
    {"each sample by itself", true,
     [](Builder& b) {
       const ValueId x = b.input({kN, Dim::of(5), Dim::of(6)});
       return b.op("MatMul", {x, b.op("Transpose", {x}, {{"perm", Ints{0, 2, 1}}})});
     }},
    {"samples times samples", false,
     [](Builder& b) {
       const ValueId x = b.input({kN, Dim::of(6)});
       const ValueId gram = b.op("MatMul", {x, b.op("Transpose", {x}, {{"perm", Ints{1, 0}}})});
       return b.op("MatMul", {gram, x});
     }},
    {"attention heads, batch in the middle", true,
     [](Builder& b) {
       const ValueId x = b.input({kN, Dim::of(4), Dim::of(6)});
       const ValueId split = b.op("Reshape", {x, b.ints({0, 4, 3, 2})});
       const ValueId moved = b.op("Transpose", {split}, {{"perm", Ints{2, 0, 1, 3}}});  // [3,n,4,2]
       const ValueId one = b.op("Slice", {moved, b.ints({1}), b.ints({2}), b.ints({0})});
       return b.op("Squeeze", {one, b.ints({0})});
     }},
    {"slice of the samples", false,
     [](Builder& b) {
       return b.op("Slice",
                   {b.input({kN, Dim::of(6)}), b.ints({-1}), b.ints({INT64_MIN}), b.ints({0}), b.ints({-1})});
     }},
    {"samples folded into rows", false,
     [](Builder& b) {
       const ValueId x = b.input({kN, Dim::of(4), Dim::of(6)});
       return b.op("Reshape", {x, b.ints({-1, 6})});
     }},
    {"samples not first in the end", false,
     [](Builder& b) {
       return b.op("Transpose", {b.input({kN, Dim::of(6)})}, {{"perm", Ints{1, 0}}});
     }},
    {"class token", true,
     [](Builder& b) {
       const ValueId x = b.input({kN, Dim::of(4), Dim::of(6)});
       const ValueId n = b.op("Gather", {b.op("Shape", {x}, {}, DType::kI64), b.ints({0})}, {}, DType::kI64);
       const ValueId shape = b.op("Concat", {n, b.ints({1, 6})}, {{"axis", std::int64_t{0}}}, DType::kI64);
       const ValueId token = b.op("Expand", {b.floats({1, 1, 6}), shape});
       return b.op("Concat", {token, x}, {{"axis", std::int64_t{1}}});
     }},
    {"concatenated samples", false,
     [](Builder& b) {
       const ValueId x = b.input({kN, Dim::of(6)});
       return b.op("Concat", {x, x}, {{"axis", std::int64_t{0}}});
     }},
    {"convolution", true,
     [](Builder& b) {
       const ValueId x = b.input({kN, Dim::of(3), Dim::of(8), Dim::of(8)});
       return b.op("Flatten", {b.op("Conv", {x, b.floats({4, 3, 3, 3})})});
     }},
    {"an operator it does not know", false,
     [](Builder& b) {
       return b.op("CumSum", {b.input({kN, Dim::of(6)}), b.ints({0})});
     }},
};

TEST(BatchAxis, Table) {
  for (const Case& c : kCases) {
    Builder b;
    const ValueId out = c.build(b);
    const std::string why = samples_stay_apart(b.finish(out));
    EXPECT_EQ(why.empty(), c.apart) << c.what << ": " << why;
  }
}

// Whatever is called apart gives the same bits in parts.
TEST(BatchAxis, PartsGiveTheBitsOfTheWhole) {
  ThreadPool pool(2);
  for (const Case& c : kCases) {
    Builder b;
    const ValueId out = c.build(b);
    const auto graph = std::make_shared<Graph>(b.finish(out));
    if (!samples_stay_apart(*graph).empty()) continue;
    Dims dims = {13};
    const Shape& shape = graph->value(graph->inputs[0]).shape;
    std::int64_t sample = 1;
    for (std::size_t i = 1; i < shape.dims.size(); ++i) {
      dims.push_back(shape.dims[i].value);
      sample *= dims.back();
    }
    Tensor x = Tensor::allocate(DType::kF32, dims);
    for (std::int64_t i = 0; i < x.size(); ++i)
      x.mut<float>()[i] = static_cast<float>(i * 7919 % 1009) / 500 - 1;
    SessionOptions options;
    options.pool = &pool;
    Session session(graph, options);
    const Tensor whole = session.run({x})[0];
    const std::int64_t bytes = whole.bytes() / 13;
    for (const std::int64_t count : {1, 5}) {
      dims[0] = count;
      for (std::int64_t first = 0; first + count <= 13; first += count) {
        const Tensor part =
            session.run({Tensor::copy_of(DType::kF32, dims, x.as<float>() + first * sample,
                                         static_cast<std::size_t>(count * sample) * sizeof(float))})[0];
        ASSERT_EQ(part.bytes(), count * bytes) << c.what;
        EXPECT_EQ(std::memcmp(part.data(), static_cast<const std::byte*>(whole.data()) + first * bytes,
                              static_cast<std::size_t>(part.bytes())),
                  0)
            << c.what << " from " << first;
      }
    }
  }
}

TEST(BatchAxis, ASessionThatSplitsGivesTheBitsOfOneThatDoesNot) {
  Builder b;
  const ValueId x = b.input({kN, Dim::of(3), Dim::of(64), Dim::of(64)});
  const ValueId y = b.op("Conv", {x, b.floats({32, 3, 3, 3})}, {{"pads", Ints{1, 1, 1, 1}}});
  const auto graph = std::make_shared<Graph>(b.finish(b.op("GlobalAveragePool", {b.op("Relu", {y})})));
  ASSERT_EQ(samples_stay_apart(*graph), "");
  ASSERT_EQ(samples_of_a_part(*graph), 8);  // 512 KB a sample
  ThreadPool pool(2);
  SessionOptions options;
  options.pool = &pool;
  Session split(graph, options);
  options.split_batch = false;
  Session whole(graph, options);
  for (const std::int64_t batch : {0, 1, 8, 16, 19}) {
    Tensor image = Tensor::allocate(DType::kF32, {batch, 3, 64, 64});
    for (std::int64_t i = 0; i < image.size(); ++i)
      image.mut<float>()[i] = static_cast<float>(i * 7919 % 1009) / 500 - 1;
    EXPECT_TRUE(equal_bytes(split.run({image})[0], whole.run({image})[0])) << batch;
  }
  EXPECT_LT(split.buffer_bytes(), whole.buffer_bytes());
}

TEST(BatchAxis, PartOfABatch) {
  EXPECT_EQ(part_of_batch(8, 12), 8);
  EXPECT_EQ(part_of_batch(64, 12), 8);
  EXPECT_EQ(part_of_batch(64, 40), 32);
  EXPECT_EQ(part_of_batch(97, 12), 12);  // a prime: the last part is smaller
}

}  // namespace
}  // namespace pare
