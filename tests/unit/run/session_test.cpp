// Sessions: reuse of buffers, shapes that change, watchers, aliases, errors in words.
#include "engine/run/session.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/error.h"
#include "engine/base/memory.h"
#include "engine/ir/schema.h"
#include "engine/run/node_plan.h"

namespace pare {
namespace {

class Builder {
 public:
  Graph graph;

  ValueId input(const char* name, std::vector<Dim> dims, DType dtype = DType::kF32) {
    Value value;
    value.name = name;
    value.dtype = dtype;
    value.shape = Shape(std::move(dims));
    const ValueId id = graph.add_value(value);
    graph.inputs.push_back(id);
    return id;
  }
  ValueId op(const char* name, std::vector<ValueId> in, Attributes attrs = {}, DType dtype = DType::kF32) {
    Value value;
    value.name = std::string(name) + std::to_string(graph.node_count());
    value.dtype = dtype;
    Node node;
    node.op = name;
    node.name = value.name;
    node.in = std::move(in);
    node.attrs = std::move(attrs);
    node.out = {graph.add_value(value)};
    const ValueId out = node.out[0];
    graph.add_node(std::move(node));
    return out;
  }
  std::shared_ptr<const Graph> finish(std::vector<ValueId> outputs) {
    graph.outputs = std::move(outputs);
    infer_shapes(graph);
    verify(graph);
    return std::make_shared<Graph>(graph);
  }
};

Tensor row(const std::vector<float>& values) {
  return Tensor::from(DType::kF32, {static_cast<std::int64_t>(values.size())}, values);
}

std::vector<float> values(const Tensor& tensor) {
  return {tensor.as<float>(), tensor.as<float>() + tensor.size()};
}

// y = (x + x) * x ... twenty times: two buffers are enough whatever the depth.
TEST(Session, BuffersAreReusedByLifetime) {
  Builder b;
  const ValueId x = b.input("x", {Dim::named("n")});
  ValueId y = x;
  for (int i = 0; i < 20; ++i) y = b.op("Add", {y, x});
  ThreadPool pool(1);
  Session session(b.finish({y}), {&pool, true, false});
  const std::int64_t n = 10000;
  const Tensor out = session.run({row(std::vector<float>(static_cast<std::size_t>(n), 1.0f))})[0];
  EXPECT_EQ(out.as<float>()[n - 1], 21.0f);
  EXPECT_LE(session.buffer_bytes(), 2 * 4 * n + 256);
}

// Without a seed of their own random nodes draw by the session's: the same bits in every session and run,
// others for another seed, and no two nodes alike. A node with a seed does not care.
TEST(Session, SeedsRandomNodes) {
  Builder b;
  const ValueId x = b.input("x", {Dim::named("n")});
  const ValueId one = b.op("RandomNormalLike", {x}), two = b.op("RandomNormalLike", {x}),
                own = b.op("RandomNormalLike", {x}, {{"seed", 3.0F}});
  const auto graph = b.finish({one, two, own});
  ThreadPool pool(2);
  const auto draw = [&](std::uint64_t seed) {
    SessionOptions options;
    options.pool = &pool;
    options.seed = seed;
    Session session(graph, options);
    session.run({row({0, 0})});
    return session.run({row({0, 0, 0, 0})});
  };
  const std::vector<Tensor> first = draw(1), again = draw(1), other = draw(2);
  EXPECT_EQ(values(first[0]), values(again[0]));
  EXPECT_NE(values(first[0]), values(first[1]));
  EXPECT_NE(values(first[0]), values(other[0]));
  EXPECT_EQ(values(first[2]), values(other[2]));
}

TEST(Session, EveryBatchSizeAndBackAgain) {
  Builder b;
  const ValueId x = b.input("x", {Dim::named("n"), Dim::of(2)});
  ThreadPool pool(2);
  Session session(b.finish({b.op("Relu", {x})}), {&pool, true, false});
  for (const std::int64_t n : {3, 1, 0, 64, 3, 7, 9, 11, 3}) {
    Tensor in = Tensor::allocate(DType::kF32, {n, 2});
    for (std::int64_t i = 0; i < 2 * n; ++i) in.mut<float>()[i] = static_cast<float>(i) - 3;
    const Tensor out = session.run({in})[0];
    ASSERT_EQ(out.dims(), (Dims{n, 2}));
    for (std::int64_t i = 0; i < 2 * n; ++i)
      ASSERT_EQ(out.as<float>()[i], std::fmax(0.0f, static_cast<float>(i) - 3));
  }
}

// A value that is read later must not be overwritten by an operator that works in place.
TEST(Session, InPlaceOnlyWhenNobodyElseReads) {
  Builder b;
  const ValueId x = b.input("x", {Dim::named("n")});
  const ValueId a = b.op("Add", {x, x});
  const ValueId relu = b.op("Relu", {a});
  const ValueId again = b.op("Sub", {a, relu});
  ThreadPool pool(1);
  Session session(b.finish({again, relu, a}), {&pool, true, false});
  const std::vector<Tensor> out = session.run({row({-1, 2})});
  EXPECT_EQ(values(out[0]), (std::vector<float>{-2, 0}));
  EXPECT_EQ(values(out[1]), (std::vector<float>{0, 4}));
  EXPECT_EQ(values(out[2]), (std::vector<float>{-2, 4}));
}

// Reshape shares memory with its input; both stay right when either is overwritten in place afterwards.
TEST(Session, AliasesKeepTheirMemory) {
  Builder b;
  const ValueId x = b.input("x", {Dim::named("n"), Dim::of(2)});
  const ValueId shape = b.graph.add_constant("shape", Tensor::ints({-1}));
  const ValueId a = b.op("Add", {x, x});
  const ValueId flat = b.op("Reshape", {a, shape});
  const ValueId relu = b.op("Relu", {flat});
  const ValueId sum = b.op("Neg", {a});
  ThreadPool pool(1);
  Session session(b.finish({relu, sum, flat}), {&pool, true, false});
  const std::vector<Tensor> out = session.run({Tensor::from<float>(DType::kF32, {2, 2}, {-1, 1, 2, -2})});
  EXPECT_EQ(values(out[0]), (std::vector<float>{0, 2, 4, 0}));
  EXPECT_EQ(values(out[1]), (std::vector<float>{2, -2, -4, 4}));
  EXPECT_EQ(values(out[2]), (std::vector<float>{-2, 2, 4, -4}));
}

// The output shape depends on a value that is computed: seen anew in each run.
TEST(Session, ShapesThatDependOnValues) {
  Builder b;
  const ValueId x = b.input("x", {Dim::of(6)});
  const ValueId shape = b.input("shape", {Dim::of(2)}, DType::kI64);
  ThreadPool pool(1);
  Session session(b.finish({b.op("Reshape", {x, shape})}), {&pool, true, false});
  const Tensor data = row({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(session.run({data, Tensor::ints({2, 3})})[0].dims(), (Dims{2, 3}));
  EXPECT_EQ(session.run({data, Tensor::ints({3, 2})})[0].dims(), (Dims{3, 2}));
  EXPECT_EQ(session.run({data, Tensor::ints({2, 3})})[0].dims(), (Dims{2, 3}));
  EXPECT_THROW(session.run({data, Tensor::ints({4, 2})}), Error);
  // A failed run leaves nothing behind.
  EXPECT_EQ(session.run({data, Tensor::ints({1, 6})})[0].dims(), (Dims{1, 6}));
}

// How many elements there are is known only when NonZero has run; what reads them follows, also none at all.
TEST(Session, SizesThatOnlyTheDataKnows) {
  Builder b;
  const ValueId x = b.input("x", {Dim::named("n")});
  const ValueId where = b.op("NonZero", {x}, {}, DType::kI64);
  const ValueId back = b.op("Transpose", {where}, {}, DType::kI64);
  const ValueId picked = b.op("GatherND", {x, back});
  const ValueId twice = b.op("Add", {picked, picked});
  ThreadPool pool(1);
  Session session(b.finish({twice, where, b.op("Unique", {x})}), {&pool, true, false});
  for (int round = 0; round < 3; ++round) {
    const std::vector<Tensor> out = session.run({row({0, 3, 0, 4, 3})});
    EXPECT_EQ(values(out[0]), (std::vector<float>{6, 8, 6}));
    EXPECT_EQ(out[1].dims(), (Dims{1, 3}));
    EXPECT_EQ(values(out[2]), (std::vector<float>{0, 3, 4}));
    EXPECT_EQ(session.run({row({0, 0})})[0].dims(), (Dims{0}));
    EXPECT_EQ(session.run({row({})})[0].dims(), (Dims{0}));
    EXPECT_EQ(values(session.run({row({1, 2, 3})})[0]), (std::vector<float>{2, 4, 6}));
  }
}

// What was prepared for a shape is kept: going round a dozen shapes prepares nothing twice.
TEST(Session, ShapesSeenBeforeArePreparedOnce) {
  Builder b;
  const ValueId x = b.input("x", {Dim::named("n"), Dim::of(512)});
  Tensor weight = Tensor::allocate(DType::kF32, {512, 512});
  std::fill_n(weight.mut<float>(), weight.size(), 0.5F);
  const ValueId w = b.graph.add_constant("w", weight);
  ThreadPool pool(1);
  const auto g = b.finish({b.op("MatMul", {x, w})});
  RunContext context{{&pool, true, false}, {}, {}, 0};
  NodePlan plan(*g, g->node(g->nodes()[0]));
  std::vector<Slot> slots(g->value_count());
  slots[static_cast<std::size_t>(w)].view = g->value(w).constant.view();
  std::map<std::int64_t, const void*> prepared;
  for (int round = 0; round < 3; ++round)
    for (std::int64_t n = 1; n <= 12; ++n) {
      Tensor in = Tensor::allocate(DType::kF32, {n, 512});
      slots[static_cast<std::size_t>(x)].view = in.view();
      const Variant& v = plan.variant_for(slots, context);
      ASSERT_NE(v.prepared, nullptr);
      const auto [it, fresh] = prepared.emplace(n, v.prepared.get());
      EXPECT_EQ(fresh, round == 0);
      EXPECT_EQ(it->second, v.prepared.get()) << n;
    }
}

TEST(Session, WatchersSeeInputsConstantsAndResults) {
  Builder b;
  const ValueId x = b.input("x", {Dim::of(2)});
  const ValueId c = b.graph.add_constant("c", row({10, 20}));
  const ValueId y = b.op("Add", {x, c});
  const ValueId z = b.op("Relu", {y});
  ThreadPool pool(1);
  Session session(b.finish({z}), {&pool, true, false});
  std::map<ValueId, std::vector<float>> seen;
  for (const ValueId id : {x, c, y, z})
    session.watch(id, [&](ValueId v, const TensorView& view) {
      seen[v].assign(view.as<float>(), view.as<float>() + view.size());
    });
  session.run({row({-15, 1})});
  EXPECT_EQ(seen[x], (std::vector<float>{-15, 1}));
  EXPECT_EQ(seen[c], (std::vector<float>{10, 20}));
  EXPECT_EQ(seen[y], (std::vector<float>{-5, 21}));
  EXPECT_EQ(seen[z], (std::vector<float>{0, 21}));
  session.clear_watchers();
  seen.clear();
  session.run({row({0, 0})});
  EXPECT_TRUE(seen.empty());
}

TEST(Session, WrongInputsAreUsageErrorsInWords) {
  Builder b;
  const ValueId x = b.input("image", {Dim::named("batch"), Dim::of(3)});
  const ValueId w = b.input("other", {Dim::named("batch"), Dim::of(3)});
  ThreadPool pool(1);
  Session session(b.finish({b.op("Add", {x, w})}), {&pool, true, false});
  const auto message = [&](std::vector<Tensor> inputs) {
    try {
      session.run(inputs);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      return std::string(error.what());
    }
    return std::string();
  };
  const Tensor good = Tensor::from<float>(DType::kF32, {1, 3}, {1, 2, 3});
  EXPECT_EQ(message({good}), "the model takes 2 inputs, 1 were given");
  EXPECT_EQ(message({row({1, 2, 3}), good}), "input 'image' has shape [3], the model wants [batch,3]");
  EXPECT_EQ(message({Tensor::from<std::int32_t>(DType::kI32, {1, 3}, {1, 2, 3}), good}),
            "input 'image' is int32, the model wants float32");
  EXPECT_EQ(message({good, Tensor::from<float>(DType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6})}),
            "input 'other' has shape [2,3]: dimension 'batch' is 2 here and 1 in an input before");
}

// Slices of whole rows share memory with what they are cut from; what is written in place of one must not
// show in another, nor in a value that is still read.
TEST(Session, ViewsOfOneBufferDoNotDisturbEachOther) {
  Builder b;
  const ValueId x = b.input("x", {Dim::named("n"), Dim::of(2)});
  const auto cut = [&](ValueId from, std::int64_t begin, std::int64_t end) {
    return b.op("Slice", {from, b.graph.add_constant("begin", Tensor::ints({begin})),
                          b.graph.add_constant("end", Tensor::ints({end}))});
  };
  const ValueId sum = b.op("Add", {x, x});
  const ValueId first = cut(sum, 0, 1), second = cut(sum, 1, 3), of_second = cut(second, 1, 2);
  const ValueId negative = b.op("Neg", {first}), root = b.op("Sqrt", {of_second}),
                absolute = b.op("Neg", {second});
  const ValueId from_input = cut(x, 2, 3), kept = b.op("Neg", {from_input});
  ThreadPool pool(1);
  const auto graph = b.finish({negative, root, absolute, first, kept, from_input});
  Session session(graph, {&pool, true, false});
  const Tensor in = Tensor::from<float>(DType::kF32, {3, 2}, {1, 2, 3, 4, 8, 18});
  const std::vector<Tensor> out = session.run({in});
  EXPECT_EQ(values(out[0]), (std::vector<float>{-2, -4}));
  EXPECT_EQ(values(out[1]), (std::vector<float>{4, 6}));
  EXPECT_EQ(values(out[2]), (std::vector<float>{-6, -8, -16, -36}));
  EXPECT_EQ(values(out[3]), (std::vector<float>{2, 4}));
  EXPECT_EQ(values(out[4]), (std::vector<float>{-8, -18}));
  EXPECT_EQ(values(out[5]), (std::vector<float>{8, 18}));
  EXPECT_EQ(values(in), (std::vector<float>{1, 2, 3, 4, 8, 18}));
  EXPECT_EQ(session.kernel_of(graph->producer(first)), "Slice/cpu:view");
}

// A model that is fed with ever new sizes must neither pack its weights for each nor keep a copy of them for
// each.
TEST(Session, PackedWeightsAreSharedByAllShapes) {
  constexpr std::int64_t kSide = 1024, kShapes = 48;
  Builder b;
  const ValueId x = b.input("x", {Dim::named("n"), Dim::of(kSide)});
  std::vector<float> weights(kSide * kSide);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 7) - 3;
  const ValueId w = b.graph.add_constant("w", Tensor::from(DType::kF32, {kSide, kSide}, weights));
  const auto graph = b.finish({b.op("MatMul", {x, w})});
  ThreadPool pool(1);
  Session session(graph, {&pool});
  const auto run = [&](Session& s, std::int64_t n) {
    std::vector<float> in(static_cast<std::size_t>(n * kSide));
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 5);
    return s.run({Tensor::from(DType::kF32, {n, kSide}, in)})[0];
  };
  run(session, kShapes);  // buffers of the largest shape, and the first packed copy
  const std::int64_t before = current_anonymous_bytes();
  for (std::int64_t n = 1; n < kShapes; ++n) run(session, n);
  EXPECT_LT(current_anonymous_bytes() - before, 12 * static_cast<std::int64_t>(weights.size()) * 4)
      << "47 copies of the weights would be 197 MB; a sanitizer keeps freed buffers for a while";
  for (const std::int64_t n : {1, 7, 31}) {
    Session fresh(graph, {&pool});
    EXPECT_TRUE(equal_bytes(run(session, n), run(fresh, n))) << n;
  }
}

// The addend of one number is a row for one width and is broadcast to another.
TEST(Session, WhatIsPackedForOneWidthIsNotTakenForAnother) {
  Builder b;
  const ValueId x = b.input("x", {Dim::of(2), Dim::of(3)}), y = b.input("y", {Dim::of(3), Dim::named("n")});
  const ValueId c = b.graph.add_constant("c", row({0.5f}));
  const auto graph = b.finish({b.op("Gemm", {x, y, c})});
  ThreadPool pool(1);
  Session session(graph, {&pool});
  const Tensor left = Tensor::from<float>(DType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6});
  for (const std::int64_t n : {1, 40, 1, 7}) {
    const std::vector<float> ones(static_cast<std::size_t>(3 * n), 1.0f);
    const Tensor out = session.run({left, Tensor::from(DType::kF32, {3, n}, ones)})[0];
    EXPECT_EQ(out.as<float>()[n - 1], 6.5f) << n;
    EXPECT_EQ(out.as<float>()[n], 15.5f) << n;
  }
}

TEST(Session, ProfileNamesKernels) {
  Builder b;
  const ValueId x = b.input("x", {Dim::of(4)});
  ThreadPool pool(1);
  Session session(b.finish({b.op("Relu", {x})}), {&pool, true, true});
  session.run({row({1, 2, 3, 4})});
  session.run({row({1, 2, 3, 4})});
  const std::vector<Session::Profile> profile = session.profile();
  ASSERT_EQ(profile.size(), 1u);
  EXPECT_EQ(profile[0].runs, 2);
  EXPECT_NE(profile[0].kernel.find("Relu"), std::string::npos);
}

}  // namespace
}  // namespace pare
