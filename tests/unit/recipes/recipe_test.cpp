// Recipes that are right: what the keys become, canonical text, extends, --set, variables, the schema.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "engine/base/atomic_file.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/paths.h"
#include "recipes/grammar/fields.h"
#include "recipes/grammar/load.h"
#include "recipes/grammar/schema.h"

namespace pare {
namespace {

RecipeOptions no_files(std::vector<std::string> sets = {}) {
  RecipeOptions options;
  options.check_files = false;
  options.sets = std::move(sets);
  return options;
}

// The two examples of the design, word for word.
const char* const kFashion = R"(
version: 1
name: fashion-resnet-int8
model: {path: resnet.onnx}                   # relative to this file; or a checkpoint folder, GGUF
datasets:
  calibration: {path: calib_images.npy, input: image, layout: nhwc_to_nchw, scale: 1/255, mean: [0.2860], std: [0.3530], samples: 512, batch: 64}
  test:        {path: test_images.npy, labels: test_labels.npy, input: image, layout: nhwc_to_nchw, scale: 1/255, mean: [0.2860], std: [0.3530]}
surgery: [simplify]
calibrate: {data: calibration}
quantize:
  target: onnxruntime
  weights:     {format: int8, granularity: channel}
  activations: {format: int8, calibrator: auto}
  rules:
    - {match: {name: "re:.*head.*"}, quantize: false}
evaluate:
  data: test
  metrics: [top1, output_sqnr_db]
  gates: [{metric: top1_drop, max: 0.005}]
build: {device: auto, precision: as_quantized}
export: {model: qdq_onnx}
report: [html, json, markdown, junit]
)";

const char* const kProse = R"(
version: 1
name: prose-nvfp4
model: {path: prose-llama}
datasets:
  calibration: {path: calibration.txt, kind: text, window: 512, stride: 512, bos: none, join: whole, samples: 128}
  valid:       {path: valid.txt, kind: text, window: 512, stride: 512, bos: none, join: whole}
quantize: {scheme: nvfp4, method: auto, ignore: [lm_head], share: [qkv, gate_up]}
evaluate: {data: valid, metrics: [perplexity, kl, token_agreement], gates: [{metric: kl, max: 0.006}]}
export: {model: compressed_tensors}
)";

TEST(Recipe, ReadsTheDesignsExamples) {
  const Recipe r = parse_recipe(kFashion, "r.yaml", "folder", no_files()).recipe;
  EXPECT_EQ(r.name, "fashion-resnet-int8");
  EXPECT_EQ(r.resolve(r.model.path), "folder/resnet.onnx");
  const DatasetSpec& data = r.datasets.at("calibration").spec;
  EXPECT_EQ(data.layout, DataLayout::kNhwcToNchw);
  EXPECT_EQ(data.scale, 1.0 / 255);
  EXPECT_EQ(data.mean, std::vector<double>{0.2860});
  EXPECT_EQ(data.samples, 512);
  EXPECT_EQ(r.quantize->weights.granularity, "channel");
  EXPECT_EQ(r.quantize->activations.calibrator, "auto");
  EXPECT_EQ(r.quantize->rules.at(0).match.name, std::vector<std::string>{"re:.*head.*"});
  EXPECT_EQ(r.quantize->rules.at(0).quantize, false);
  EXPECT_EQ(r.evaluate->gates.at(0).max, 0.005);
  EXPECT_FALSE(r.evaluate->gates.at(0).min.has_value());
  EXPECT_EQ(r.build->precision, "as_quantized");

  const Recipe prose = parse_recipe(kProse, "r.yaml", "", no_files()).recipe;
  EXPECT_EQ(prose.datasets.at("valid").spec.window, 512);
  EXPECT_EQ(prose.quantize->share, (std::vector<std::string>{"qkv", "gate_up"}));
  EXPECT_FALSE(prose.calibrate.has_value());
}

TEST(Recipe, CanonicalTextReadsBackToItself) {
  for (const char* text : {kFashion, kProse}) {
    const LoadedRecipe first = parse_recipe(text, "r.yaml", "f", no_files());
    const LoadedRecipe second = parse_recipe(first.text, "again.yaml", "f", no_files());
    EXPECT_EQ(first.text, second.text);
    EXPECT_NE(first.text.find("version: 1\n"), std::string::npos);
  }
}

TEST(Recipe, CanonicalTextKeepsAPlainDollarBrace) {
  const char* text = "version: 1\nname: n\nmodel: {path: \"a$${b}$${\"}\n";
  const LoadedRecipe first = parse_recipe(text, "r", "", no_files());
  EXPECT_EQ(first.recipe.model.path, "a${b}${");
  EXPECT_EQ(parse_recipe(first.text, "r", "", no_files()).text, first.text);
}

TEST(Recipe, TextDoesNotDependOnOrderOrStyle) {
  const std::string a = "version: 1\nname: x\nmodel:\n  path: 'm.onnx'\n";
  const std::string b = "{model: {path: m.onnx}, name: \"x\", version: 1}";
  EXPECT_EQ(parse_recipe(a, "a", "", no_files()).text, parse_recipe(b, "b", "", no_files()).text);
}

TEST(Recipe, SetReachesListsAndMakesMappings) {
  const Recipe r =
      parse_recipe(kFashion, "r.yaml", "",
                   no_files({"evaluate.gates.0.max=-1", "seed=7", "evaluate.gates.1={metric: top1, min: 0.9}",
                             "calibrate.holdout=100"}))
          .recipe;
  EXPECT_EQ(r.evaluate->gates.at(0).max, -1);
  EXPECT_EQ(r.evaluate->gates.at(1).metric, "top1");
  EXPECT_EQ(r.seed, 7);
  EXPECT_EQ(r.calibrate->holdout, 100);
}

TEST(Recipe, VariablesComeFromSetThenEnvironment) {
  ::setenv("PARE_TEST_FOLDER", "from_environment", 1);
  const char* text = "version: 1\nname: n\nmodel: {path: \"${PARE_TEST_FOLDER}/${NAME}.onnx\"}\n";
  EXPECT_EQ(parse_recipe(text, "r", "", no_files({"NAME=a"})).recipe.model.path, "from_environment/a.onnx");
  EXPECT_EQ(parse_recipe(text, "r", "", no_files({"NAME=a", "PARE_TEST_FOLDER=set"})).recipe.model.path,
            "set/a.onnx");
  EXPECT_EQ(
      parse_recipe("version: 1\nname: n\nmodel: {path: \"a$${b}\"}\n", "r", "", no_files()).recipe.model.path,
      "a${b}");
  ::unsetenv("PARE_TEST_FOLDER");
}

TEST(Recipe, ExtendsMergesKeyByKeyAndRewritesPaths) {
  const std::string folder = make_temporary_directory();
  make_directories(folder + "/base");
  write_file_atomically(
      folder + "/base/b.yaml",
      std::string_view("version: 1\nmodel: {path: m.onnx}\n"
                       "datasets: {calibration: {path: c.npy, batch: 8}, test: {path: /abs/t.npy}}\n"
                       "extends: builtin/int8\n"));
  write_file_atomically(folder + "/r.yaml", std::string_view("version: 1\nextends: base/b.yaml\nname: mine\n"
                                                             "quantize: {target: tensorrt}\n"
                                                             "datasets: {calibration: {samples: 3}}\n"));
  const std::string other = load_recipe(folder + "/base/b.yaml", no_files({"extends=builtin/fp8"})).text;
  EXPECT_NE(other.find("scheme: fp8"), std::string::npos) << other;
  const Recipe r = load_recipe(folder + "/r.yaml", no_files()).recipe;
  EXPECT_EQ(r.quantize->scheme, "int8");
  EXPECT_EQ(r.quantize->target, "tensorrt");
  EXPECT_EQ(r.datasets.at("calibration").spec.batch, 8);
  EXPECT_EQ(r.datasets.at("calibration").spec.samples, 3);
  EXPECT_EQ(r.resolve(r.model.path), folder + "/base/m.onnx");
  EXPECT_EQ(r.resolve(r.datasets.at("test").spec.path), "/abs/t.npy");

  write_file_atomically(folder + "/circle.yaml", std::string_view("version: 1\nextends: circle.yaml\n"));
  EXPECT_THROW(load_recipe(folder + "/circle.yaml", no_files()), Error);
  remove_tree(folder);
}

TEST(Recipe, EveryBuiltinWorksOnceModelAndDataAreThere) {
  ASSERT_GE(builtin_recipes().size(), 4u);
  for (const BuiltinRecipe& builtin : builtin_recipes()) {
    SCOPED_TRACE(builtin.name);
    EXPECT_GT(std::string(builtin.what).size(), 20u);
    const std::string text = std::string("version: 1\nname: x\nextends: builtin/") + builtin.name +
                             "\nmodel: {path: m}\ndatasets: {calibration: {path: c}, test: {path: t}}\n";
    const Recipe r = parse_recipe(text, "r", "", no_files()).recipe;
    EXPECT_TRUE(r.quantize.has_value());
    EXPECT_TRUE(r.evaluate.has_value());
  }
}

TEST(Recipe, SchemaKnowsEveryKeyOfTheExamples) {
  const Json schema = parse_json(recipe_schema(), "schema");
  const Json& properties = schema["properties"];
  for (const char* key : {"version", "extends", "name", "model", "datasets", "surgery", "calibrate",
                          "quantize", "evaluate", "build", "export", "report"})
    EXPECT_TRUE(properties.contains(key)) << key;
  EXPECT_EQ(schema["required"], Json::array({"version", "model"}));
  EXPECT_FALSE(schema["additionalProperties"].get<bool>());
  EXPECT_TRUE(properties["datasets"]["additionalProperties"]["properties"].contains("window"));
  EXPECT_TRUE(properties["quantize"]["properties"]["rules"]["items"]["properties"].contains("match"));
}

TEST(Numbers, FractionsAndShortestText) {
  double value = 0;
  EXPECT_TRUE(number_from_text("1/255", value));
  EXPECT_EQ(value, 1.0 / 255);
  EXPECT_TRUE(number_from_text("+.5", value));
  EXPECT_EQ(value, 0.5);
  EXPECT_TRUE(number_from_text("-3e-2", value));
  EXPECT_EQ(number_text(value), "-0.03");
  for (const char* text : {"", "1/", "/2", "1/0", "nan", "inf", "1e999", "0x1", "1 ", "1/2/3"})
    EXPECT_FALSE(number_from_text(text, value)) << text;
}

TEST(Emit, QuotesWhatWouldReadBackAsSomethingElse) {
  TreeNode map = TreeNode::map();
  for (const char* text : {"true", "12", "a b", "", "x: y", "-", "#c", "\"q\\", "line\nbreak", "é"})
    map.add("k" + std::to_string(map.members.size()), TreeNode::scalar(text, true));
  const std::string text = emit_yaml(map);
  const TreeNode back = parse_yaml(text, std::make_shared<TreeSource>());
  ASSERT_EQ(back.members.size(), map.members.size()) << text;
  for (std::size_t i = 0; i < map.members.size(); ++i)
    EXPECT_EQ(back.members[i].value.text, map.members[i].value.text) << text;
  EXPECT_TRUE(back.members[1].value.quoted);  // "12" stays a text
  EXPECT_EQ(emit_yaml(back), text);
}

}  // namespace
}  // namespace pare
