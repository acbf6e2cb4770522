// Blocks: what is cut out of a model computes what the model does, in every bit, and joined again it is the
// model; files and stores give back what went in.
#include "recipes/blocks/quantize_blocks.h"

#include <gtest/gtest.h>

#include <cmath>

#include "datasets/random.h"
#include "engine/base/absent_tensor.h"
#include "engine/base/atomic_file.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/run/session.h"
#include "graphsurgeon/block_cut.h"
#include "graphsurgeon/families/family.h"
#include "graphsurgeon/open_checkpoint.h"
#include "quant/audit.h"
#include "recipes/blocks/journal_size.h"
#include "recipes/quantize/graph_record.h"
#include "tests/unit/datasets/temporary.h"
#include "tests/unit/errors.h"
#include "tests/unit/graphsurgeon/text_model.h"
#include "tests/unit/test_paths.h"

namespace pare {
namespace {

Graph family(const std::string& name, bool views) {
  BuildOptions options;
  options.views = views;
  return build_graph(open_checkpoint(source_path("tests/golden/families/" + name)), options);
}

std::vector<Tensor> run(const Graph& graph, const std::vector<Tensor>& inputs, ThreadPool& pool) {
  SessionOptions options;
  options.pool = &pool;
  return Session(lower_for_cpu(graph).graph, options).run(inputs);
}

Tensor token_rows(std::int64_t rows, std::int64_t length) {
  Tensor ids = Tensor::allocate(DType::kI64, {rows, length});
  for (std::int64_t i = 0; i < ids.size(); ++i) ids.mut<std::int64_t>()[i] = (i * 7 + 3) % 30;
  return ids;
}

struct FamilyBlocks {
  const char* name;
  std::vector<std::string> blocks;
};
void PrintTo(const FamilyBlocks& f, std::ostream* out) { *out << f.name; }

class BlocksOfFamilies : public testing::TestWithParam<FamilyBlocks> {
 protected:
  ThreadPool pool{2};
};

// One after the other, each with the output of the one before: the logits of the whole, bit for bit. And the
// weights are those of a graph that was built without views.
TEST_P(BlocksOfFamilies, ComputeWhatTheModelDoes) {
  const Graph whole = family(GetParam().name, true);
  const std::vector<GraphBlock> blocks = find_blocks(whole);
  std::vector<std::string> names;
  for (const GraphBlock& block : blocks) names.push_back(block.name);
  EXPECT_EQ(names, GetParam().blocks);
  const Tensor ids = token_rows(2, 9);
  std::vector<Tensor> wanted = run(family(GetParam().name, false), {ids}, pool);
  Tensor x;
  for (const GraphBlock& block : blocks) {
    const Graph part = extract_block(whole, block, pool);
    std::vector<Tensor> inputs;
    for (const ValueId id : part.inputs) inputs.push_back(part.value(id).name == "input_ids" ? ids : x);
    x = run(part, inputs, pool).at(0);
  }
  EXPECT_TRUE(equal_bytes(x, wanted.at(0)));
}

INSTANTIATE_TEST_SUITE_P(
    All, BlocksOfFamilies,
    testing::Values(FamilyBlocks{"llama", {"model.layers.0", "model.layers.1", "head"}},
                    FamilyBlocks{"mistral", {"model.layers.0", "model.layers.1", "head"}},
                    FamilyBlocks{"gemma3", {"model.layers.0", "model.layers.1", "model.layers.2", "head"}},
                    FamilyBlocks{"mixtral", {"model.layers.0", "model.layers.1", "head"}},
                    FamilyBlocks{"phi3", {"model.layers.0", "model.layers.1", "head"}}),
    [](const auto& one) { return std::string(one.param.name); });

// Parts whose plans are empty, joined: the model, node by node.
TEST(Blocks, JoinedAreTheModel) {
  ThreadPool pool(1);
  const Graph whole = family("llama", true);
  BlockAssembly assembly(whole);
  for (const GraphBlock& block : find_blocks(whole)) {
    QuantizeOutcome part;
    part.source = extract_block(whole, block, pool);
    assembly.add(compacted(part), block.in == ValueId::kNone ? "" : whole.value(block.in).name, block.name);
  }
  const Graph joined = assembly.finish().source, plain = family("llama", false);
  EXPECT_EQ(joined.node_count(), plain.node_count());
  EXPECT_EQ(joined.inputs.size(), plain.inputs.size());
  const Tensor ids = token_rows(1, 5);
  EXPECT_TRUE(equal_bytes(run(joined, {ids}, pool).at(0), run(plain, {ids}, pool).at(0)));
  for (const NodeId id : plain.nodes())
    for (const ValueId out : plain.node(id).out)
      EXPECT_TRUE(out == ValueId::kNone || joined.find_value(plain.value(out).name) != ValueId::kNone);
}

// The files of finished blocks: codes and scales, no float weights, whose place is empty when they come back;
// foreseen to within what headers and small tensors take; the embedding is a view of the model's.
TEST(Blocks, FilesHoldCodesAlone) {
  const TemporaryFolder folder;
  ThreadPool pool(1);
  const Graph whole = family("llama", true);
  QuantizeChoices choices;
  choices.spec.weights = quant::weight_format("int4");
  choices.spec.activations = {};
  choices.spec.method = "rtn";
  const std::vector<GraphBlock> blocks = find_blocks(whole);
  std::int64_t written = 0, graphs = 0;
  for (const GraphBlock& block : blocks) {
    const Graph part = extract_block(whole, block, pool);
    QuantizeInput input;
    input.graph = &part;
    input.pool = &pool;
    BlockOutcome made;
    made.outcome = compacted(quantize_model(input, choices));
    ASSERT_FALSE(made.outcome.plan.weights.empty());
    const std::string path = folder.file("block");
    save_block(path, "key", made, whole);
    written += static_cast<std::int64_t>(file_size(path));
    Json head;
    graphs += static_cast<std::int64_t>(read_text_file(path, 1u << 24).find('\n'));
    std::string why;
    EXPECT_FALSE(load_block(path, "another", whole, &why));
    const std::optional<BlockOutcome> back = load_block(path, "key", whole, &why);
    ASSERT_TRUE(back) << why;
    EXPECT_EQ(to_text(back->outcome.quantized), to_text(made.outcome.quantized));
    for (std::size_t i = 0; i < back->outcome.plan.weights.size(); ++i) {
      const quant::WeightSite& site = back->outcome.plan.placement.weights[i];
      EXPECT_TRUE(is_absent(back->outcome.source.value(site.value).constant));
      EXPECT_TRUE(equal_bytes(back->outcome.plan.weights[i].codes, made.outcome.plan.weights[i].codes));
    }
    EXPECT_TRUE(quant::audit(back->outcome.source, back->outcome.plan, back->outcome.quantized).passed());
  }
  const std::int64_t foreseen = disk_need(whole, blocks, choices.spec).blocks;
  EXPECT_GE(written - graphs, foreseen);
  // Norms, and every tensor begins at a multiple of 64 bytes.
  EXPECT_LE(written - graphs, foreseen + 64 * 200);
  EXPECT_NO_THROW(check_room(folder.file(""), foreseen, "the blocks"));
  EXPECT_EQ(thrown_by([&] { check_room(folder.file(""), std::int64_t{1} << 60, "the blocks"); }).code(),
            ErrorCode::kDevice);
}

// Nothing of the head gets codes: it is passed on as views of the model's weights, its file holds a graph,
// and the disk need counts no weight of it. The logits are those of the float model, in every bit.
TEST(Blocks, AHeadThatStaysFloatIsNeverWidened) {
  const TemporaryFolder folder;
  ThreadPool pool(2);
  for (const char* name : {"llama", "llama3"}) {  // a head of its own, and one that is the embedding
    const Graph whole = family(name, true), plain = family(name, false);
    QuantizeChoices choices;
    choices.spec.weights = quant::weight_format("int4");
    choices.spec.activations = {};
    choices.spec.method = "rtn";
    const std::vector<GraphBlock> blocks = find_blocks(whole);
    EXPECT_FALSE(stays_float(whole, blocks.back(), choices, pool));
    const DiskNeed coded = disk_need(whole, blocks, choices.spec);
    quant::Rule rule;
    rule.match.name = {"lm_head"};
    rule.quantize = false;
    choices.spec.rules = {rule};
    EXPECT_TRUE(stays_float(whole, blocks.back(), choices, pool));
    EXPECT_FALSE(stays_float(whole, blocks.front(), choices, pool));
    EXPECT_LT(disk_need(whole, blocks, choices.spec).blocks, coded.blocks);

    BlockAssembly assembly(whole);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      BlockOutcome made;
      made.outcome.source = extract_block(whole, blocks[i], pool, BlockWeights::kViews);
      made.outcome = compacted(std::move(made.outcome));
      const std::string path = folder.file(blocks[i].name);
      save_block(path, "key", made, whole);
      EXPECT_LT(file_size(path), 40000u) << "no weights";
      std::optional<BlockOutcome> back = load_block(path, "key", whole);
      ASSERT_TRUE(back);
      assembly.add(back->outcome, blocks[i].in == ValueId::kNone ? "" : whole.value(blocks[i].in).name,
                   blocks[i].name);
    }
    const Graph joined = assembly.finish().quantized;
    const Tensor ids = token_rows(1, 5);
    EXPECT_TRUE(equal_bytes(run(joined, {ids}, pool).at(0), run(plain, {ids}, pool).at(0))) << name;
  }
}

TEST(Blocks, NetsWithoutASingleValueBetweenLayersHaveNone) {
  const Graph two = text_graph(21,
                               "g (float[N,4] x) => (float[N,4] y, float[N,4] z) <float[4,4] w = "
                               "{1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}> { y = MatMul(x, w) z = MatMul(y, w) }");
  EXPECT_TRUE(find_blocks(two).empty());
}

// Names say nothing; attention does. Both halves of a block hang on one residual stream.
TEST(Blocks, AreFoundByAttentionWhereNamesSayNothing) {
  const std::string w = "float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}";
  const auto layer = [](const std::string& x, const std::string& to, const std::string& n) {
    return " q" + n + " = MatMul(" + x + ", w) s" + n + " = Softmax(q" + n + ") o" + n + " = MatMul(s" + n +
           ", w) r" + n + " = Add(" + x + ", o" + n + ") m" + n + " = MatMul(r" + n + ", w) g" + n +
           " = Relu(m" + n + ") d" + n + " = MatMul(g" + n + ", w) " + to + " = Add(r" + n + ", d" + n + ")";
  };
  const Graph graph =
      text_graph(21, "g (float[N,4] x) => (float[N,4] y) <" + w + "> {" + layer("x", "u", "a") +
                         layer("u", "v", "b") + layer("v", "t", "c") + " y = MatMul(t, w) }");
  std::vector<std::string> cuts;
  for (const GraphBlock& block : find_blocks(graph))
    cuts.push_back(block.out == ValueId::kNone ? "end" : graph.value(block.out).name);
  EXPECT_EQ(cuts, (std::vector<std::string>{"u", "v", "t", "end"}));
}

TEST(Blocks, NanInAWeightIsNamed) {
  Graph whole = family("llama", true);
  const ValueId id = whole.find_value("model.layers.1.mlp.up_proj.weight");
  ASSERT_NE(id, ValueId::kNone);
  Tensor bad = whole.value(id).constant.clone();
  bad.mut<std::uint16_t>()[5] = 0x7FC0;
  whole.value(id).constant = bad;
  ThreadPool pool(1);
  const std::vector<GraphBlock> blocks = find_blocks(whole);
  EXPECT_NO_THROW(extract_block(whole, blocks.at(0), pool));
  for (const BlockWeights weights : {BlockWeights::kFloats, BlockWeights::kViews}) {
    try {
      extract_block(whole, blocks.at(1), pool, weights);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadFile);
      EXPECT_NE(std::string(error.what()).find("'model.layers.1.mlp.up_proj.weight' has 1 NaN"),
                std::string::npos)
          << error.what();
    }
  }
}

TEST(GraphRecord, ComesBackAsItWas) {
  const TemporaryFolder folder;
  const std::string path = folder.file("graph");
  for (const char* name : {"llama", "mixtral"}) {
    QuantizeOutcome outcome;
    outcome.source = family(name, false);
    const Graph graph = compacted(outcome).source;
    TensorList tensors;
    const Json record = graph_record(graph, tensors);
    tensors.write(path, {{"graph", record}});
    Json head;
    const TensorList read = TensorList::read(path, head);
    const Graph back = graph_from_record(head.at("graph"), read, path);
    verify(back);
    EXPECT_EQ(to_text(back), to_text(graph)) << name;
  }
  // A changed byte, a cut file: refused.
  const std::string text = read_text_file(path, 1u << 30);
  Json head;
  for (const std::size_t at : {text.size() - 1, text.size() / 2}) {
    std::string bad = text;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    write_file_atomically(path, bad);
    EXPECT_ANY_THROW(TensorList::read(path, head)) << at;
    write_file_atomically(path, std::string_view(text).substr(0, at));
    EXPECT_ANY_THROW(TensorList::read(path, head)) << at;
  }
}

// Numbers that are not written: one tensor comes back without any, one from where the reader has it; both are
// written once, and a reader that has another tensor there is refused.
TEST(GraphRecord, LeavesOut) {
  const TemporaryFolder folder;
  const std::string path = folder.file("part");
  const Tensor gone = Tensor::from(DType::kF32, {2, 1 << 16}, std::vector<float>(1 << 17, 0.5f));
  const Tensor there = Tensor::from(DType::kF32, {1 << 16}, std::vector<float>(1 << 16, 2.0f));
  const Tensor kept = Tensor::scalar(7);
  TensorList tensors;
  tensors.leave_out(gone);
  tensors.leave_out(there, "embedding");
  const std::int64_t first = tensors.add(kept);
  EXPECT_EQ(tensors.add(gone), 0);
  EXPECT_EQ(tensors.add(there), 1);
  tensors.write(path, {{"x", 1}});
  EXPECT_LT(file_size(path), 4096u);
  Json head;
  const auto give = [&](const std::string& name) { return name == "embedding" ? there : Tensor{}; };
  const TensorList back = TensorList::read(path, head, give);
  EXPECT_TRUE(is_absent(back.at(0)));
  EXPECT_EQ(back.at(0).dims(), gone.dims());
  EXPECT_EQ(back.at(0).dtype(), DType::kF32);
  EXPECT_EQ(back.at(1).data(), there.data());
  EXPECT_TRUE(equal_bytes(back.at(first), kept));
  EXPECT_ANY_THROW(TensorList::read(path, head));
  EXPECT_ANY_THROW(TensorList::read(path, head, [&](const std::string&) { return gone; }));
}

struct Held {
  DType type;
  std::int64_t memory;
};
class ActivationStores : public testing::TestWithParam<Held> {};

// Written in batches, read in others; replaced while the next block's are computed from them.
TEST_P(ActivationStores, GiveBackWhatWasPut) {
  const TemporaryFolder folder;
  ThreadPool pool(2);
  std::string values = "{'descr': '<i8', 'fortran_order': False, 'shape': (5, 3), }";
  std::string npy("\x93NUMPY\x01\x00", 8);
  values += std::string(118 - values.size() - 1, ' ') + "\n";
  npy += std::string("\x76\x00", 2) + values;
  for (std::int64_t i = 0; i < 15; ++i) npy.append(reinterpret_cast<const char*>(&i), sizeof i);
  write_file_atomically(folder.file("ids.npy"), npy);
  DatasetSpec spec;
  spec.path = folder.file("ids.npy");
  spec.input = "ids";
  const InputSpec ids{"ids", DType::kI64, Shape({Dim::named("n"), Dim::of(3)})};
  Dataset data(spec, {ids});
  ActivationOptions options;
  options.type = GetParam().type;
  options.memory_bytes = GetParam().memory;
  options.folder = folder.file("");
  ActivationStore store(data, options, pool);
  EXPECT_EQ(store.count(), 5);
  const InputSpec x{"x", DType::kF32, Shape({Dim::named("n"), Dim::named("s"), Dim::of(2)})};
  const auto value = [](std::int64_t sample, std::int64_t i, float more) {
    return static_cast<float>(sample * 10 + i) + 0.001F + more;
  };
  const auto put = [&](const char* name, float more) {
    for (std::int64_t begin = 0; begin < 5; begin += 2) {
      const std::int64_t k = std::min<std::int64_t>(2, 5 - begin);
      Tensor batch = Tensor::allocate(DType::kF32, {k, 3, 2});
      for (std::int64_t i = 0; i < batch.size(); ++i)
        batch.mut<float>()[i] = value(begin + i / 6, i % 6, more);
      store.put(name, begin, batch);
    }
  };
  put("w", 1000);
  put("x", 0);
  EXPECT_EQ(store.in_file(), GetParam().memory == 0);
  EXPECT_EQ(store.bytes(), 5 * 6 * (GetParam().type == DType::kF32 ? 4 : 2));
  const auto two = store.data({x, ids}, 4);
  EXPECT_EQ(two->sample_count(), 4);
  const Batch batch = two->read(1, 4, &pool);
  for (std::int64_t i = 0; i < 18; ++i) {
    const float wanted = value(1 + i / 6, i % 6, 0);
    // bfloat16 keeps eight bits of the significand: half a unit in the last place is 2^-9 of the value.
    EXPECT_NEAR(batch.inputs.at(0).as<float>()[i], wanted,
                GetParam().type == DType::kF32 ? 0 : wanted * std::ldexp(1.0F, -8));
  }
  for (std::int64_t i = 0; i < 9; ++i) EXPECT_EQ(batch.inputs.at(1).as<std::int64_t>()[i], i + 3);
  Tensor other = Tensor::allocate(DType::kF32, {1, 4, 2});
  EXPECT_THROW(store.put("x", 1, other), Error);
}

INSTANTIATE_TEST_SUITE_P(All, ActivationStores,
                         testing::Values(Held{DType::kF32, 1 << 20}, Held{DType::kF32, 0},
                                         Held{DType::kBF16, 1 << 20}, Held{DType::kBF16, 0}));

}  // namespace
}  // namespace pare
