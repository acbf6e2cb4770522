// Every way a recipe can be wrong, with the exact words, the line and the column the user gets. The table is
// the promise that a mistake is found before any work starts and can be mended without reading the manual.
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "recipes/grammar/load.h"
#include "recipes/grammar/mistakes.h"

namespace pare {
namespace {

// Two data sets and a model; a case's text stands in front, so its lines count from 1.
const std::string kRest =
    "model: {path: m.onnx}\n"
    "datasets:\n"
    "  calibration: {path: c.npy}\n"
    "  test: {path: t.npy, labels: l.npy}\n";

// A data set whose last keys a case adds, on line 4 from column 20.
const std::string kHead = "version: 1\nmodel: {path: m.onnx}\ndatasets:\n  d: {path: c.npy, ";

const char* const kKeysHint =
    "`pare recipe show` prints a recipe with every key; docs/reference.md says what each takes";

struct Wrong {
  const char* what;
  std::string text;
  std::string message, where, hint;
  ErrorCode code = ErrorCode::kUsage;
  std::vector<std::string> sets = {};
};
void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.what; }

class WrongRecipe : public testing::TestWithParam<Wrong> {};

TEST_P(WrongRecipe, SaysWhatWhereAndWhatToDo) {
  const Wrong& w = GetParam();
  RecipeOptions options;
  options.sets = w.sets;
  options.check_files = w.code == ErrorCode::kBadFile;
  try {
    parse_recipe(w.text, "r.yaml", "/nowhere", options);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), w.code);
    EXPECT_EQ(error.what(), w.message);
    EXPECT_EQ(error.where(), w.where);
    EXPECT_EQ(error.hint(), w.hint);
  }
}

const Wrong kYaml[] = {
    {"empty", "", "the recipe is empty", "r.yaml", "`pare recipe init` writes one to start from"},
    {"not_a_mapping", "- 1\n", "a recipe is a mapping, but this is a list", "r.yaml:1:1",
     "start with `version: 1`"},
    {"syntax", "version: 1\nname: [a, b\n", "invalid YAML: end of sequence flow not found", "r.yaml:3:1",
     "look at the indentation, and at colons and brackets of this line and the one above"},
    {"tab", "version: 1\nmodel:\n\tpath: x\n", "invalid YAML: illegal map value", "r.yaml:3:6",
     "look at the indentation, and at colons and brackets of this line and the one above"},
    {"twice", "version: 1\nname: a\nname: b\n", "key 'name' stands here twice", "r.yaml:3:1",
     "keep one of the two"},
    {"anchor", "version: 1\nname: &x a\n", "anchors (&name) are not supported in recipes", "r.yaml:2:7",
     "write the value out, or use extends"},
    {"merge", "version: 1\n<<: {a: 1}\n", "merge keys (<<) are not supported in recipes", "r.yaml:2:1",
     "use `extends: OTHER.yaml`"},
    {"second_document", "version: 1\n---\nversion: 1\n", "a second YAML document", "r.yaml",
     "one recipe a file"},
    {"deep", "version: 1\nname: " + std::string(40, '[') + std::string(40, ']'),
     "nested deeper than 32 levels", "r.yaml:2:38", "is it the right file?"},
    {"list_as_key", "? [a]\n: 1\n", "a key must be plain text", "r.yaml:1:3",
     "a line is KEY: VALUE; lists and mappings are values only"},
};

const Wrong kKeys[] = {
    {"no_version", "name: a\n" + kRest, "the recipe needs the key 'version' (of this grammar: 1)",
     "r.yaml:1:1", "add 'version:' there"},
    {"version_2", "version: 2\n" + kRest, "'version' is 2, above its largest value 1", "r.yaml:1:10",
     kKeysHint},
    {"no_model", "version: 1\n", "the recipe needs the key 'model' (what is quantized)", "r.yaml:1:1",
     "add 'model:' there"},
    {"misspelt", "version: 1\nquantise: {scheme: int8}\n" + kRest, "unknown key 'quantise' in the recipe",
     "r.yaml:2:1", "did you mean 'quantize'?"},
    {"misspelt_inside", "version: 1\nquantize:\n  scheme: int8\n  wieghts: {}\n" + kRest,
     "unknown key 'wieghts' in 'quantize'", "r.yaml:4:3", "did you mean 'weights'?"},
    {"misspelt_in_list",
     "version: 1\nevaluate:\n  data: test\n  gates:\n  - {metric: top1, maxx: 1}\n" + kRest,
     "unknown key 'maxx' in item 0 of 'gates'", "r.yaml:5:20", "did you mean 'max'?"},
    {"nothing_near", "version: 1\nevaluate: {data: test, zebra: 1}\n" + kRest,
     "unknown key 'zebra' in 'evaluate'", "r.yaml:2:24",
     "known: data, metrics, gates, baseline, layer_samples, batch, arithmetic"},
    {"no_value", "version: 1\nname:\n" + kRest, "'name' has no value", "r.yaml:2:1", kKeysHint},
    {"quoted_number", "version: \"1\"\n" + kRest, "'version' must be a whole number, not '1'", "r.yaml:1:10",
     "leave the quotes out"},
    {"list_for_text", "version: 1\nname: [a]\n" + kRest, "'name' must be a text, not a list", "r.yaml:2:7",
     kKeysHint},
    {"text_for_mapping", "version: 1\nmodel: m.onnx\n",
     "'model' is a mapping of keys, but this is a single value", "r.yaml:2:8",
     "for example {path: m.onnx}; keys: path"},
    {"per_cent", "version: 1\nevaluate: {data: test, gates: [{metric: top1_drop, max: 0.5%}]}\n" + kRest,
     "'max' must be a number, not '0.5%'", "r.yaml:2:57", "shares are fractions: 0.005"},
    {"part_of_a_word", "version: 1\nquantize: {weights: {granularity: per_channel}}\n" + kRest,
     "'granularity' cannot be 'per_channel'", "r.yaml:2:35", "did you mean 'channel'?"},
    {"choice", "version: 1\nquantize: {scheme: int8, target: tensorrd}\n" + kRest,
     "'target' cannot be 'tensorrd'", "r.yaml:2:34", "did you mean 'tensorrt'?"},
    {"yes", "version: 1\nquantize: {scheme: int8, weights: {symmetric: yes}}\n" + kRest,
     "'symmetric' must be true or false, not 'yes'", "r.yaml:2:47", "symmetric: no zero point"},
    {"fraction", "version: 1\nmodel: {path: m}\ndatasets: {d: {path: p, scale: 1/0}}\n",
     "'scale' must be a number, not '1/0'", "r.yaml:3:32",
     "scale: (x * scale - mean) / std; 1/255 may be written"},
    {"infinite", "version: 1\nmodel: {path: m}\ndatasets: {d: {path: p, scale: inf}}\n",
     "'scale' must be a number, not 'inf'", "r.yaml:3:32",
     "scale: (x * scale - mean) / std; 1/255 may be written"},
    {"negative", "version: 1\nmodel: {path: m}\ndatasets: {d: {path: p, samples: -5}}\n",
     "'samples' is -5, below its least value 0", "r.yaml:3:34", kKeysHint},
};

const Wrong kSense[] = {
    {"folder_name", "version: 1\nname: ../x\n" + kRest, "the name '../x' cannot name a folder", "r.yaml:2:7",
     "use letters, digits, '-', '_' and '.'"},
    {"unknown_data", "version: 1\ncalibrate: {data: calibraton}\n" + kRest, "'calibraton' names no data set",
     "r.yaml:2:19", "did you mean 'calibration'?"},
    {"no_format", "version: 1\nquantize: {target: pare}\n" + kRest, "'quantize' says no format",
     "r.yaml:2:11", "give it a scheme: int8, fp8 ... (pare ops --formats)"},
    {"no_calibration", "version: 1\nquantize: {scheme: int8}\n" + kRest,
     "activations are quantized but nothing calibrates them", "r.yaml:2:11",
     "add calibrate: {data: calibration}, or activations: {format: none}, or {dynamic: true}"},
    {"percentile",
     "version: 1\ncalibrate: {data: calibration}\nquantize: {scheme: int8, activations: "
     "{calibrator: percentile(101)}}\n" +
         kRest,
     "'percentile(101)' is no percentile: a number above 50 and up to 100 is needed", "r.yaml:3:52",
     "for example percentile(99.99)"},
    {"group_of_channel",
     "version: 1\nquantize: {scheme: int4, weights: {granularity: channel, group_size: "
     "32}}\n" +
         kRest,
     "'group_size' has no meaning with granularity channel", "r.yaml:2:70", "use granularity: group"},
    {"empty_match", "version: 1\nquantize: {scheme: int4, rules: [{match: {}, quantize: false}]}\n" + kRest,
     "rule 0 matches everything", "r.yaml:2:42", "give `match` a name, op, tensor, dtype or block"},
    {"empty_rule", "version: 1\nquantize: {scheme: int4, rules: [{match: {op: Conv}}]}\n" + kRest,
     "rule 0 changes nothing", "r.yaml:2:34", "for example quantize: false"},
    {"metric", "version: 1\nevaluate: {data: test, metrics: [top1, output_sqnr]}\n" + kRest,
     "there is no metric 'output_sqnr'", "r.yaml:2:40", "did you mean 'output_sqnr_db'?"},
    {"labels", "version: 1\nevaluate: {data: calibration, metrics: [top1]}\n" + kRest,
     "metric top1 needs labels, and data set 'calibration' has none", "r.yaml:2:41",
     "add `labels: FILE` to the data set"},
    {"gate_not_computed",
     "version: 1\nevaluate:\n  data: test\n  metrics: [top1]\n  gates:\n  - {metric: "
     "top5_drop, max: 0}\n" +
         kRest,
     "a gate on top5_drop, but top5 is not computed", "r.yaml:6:14", "add top5 to evaluate.metrics"},
    {"gate_without_limit",
     "version: 1\nevaluate: {data: test, metrics: [top1], gates: [{metric: top1}]}\n" + kRest,
     "the gate on top1 has no limit", "r.yaml:2:49", "give it `max` or `min`"},
    {"gate_unknown",
     "version: 1\nevaluate: {data: test, metrics: [top1], gates: [{metric: top1_dorp, max: 0}]}\n" + kRest,
     "there is no metric 'top1_dorp'", "r.yaml:2:58", "did you mean 'top1_drop'?"},
    {"gate_of_own_words",
     "version: 1\nevaluate: {data: test, metrics: [top1], gates: [{metric: perplexity_increase, max: 0}]}\n" +
         kRest,
     "there is no metric 'perplexity_increase'", "r.yaml:2:58",
     "did you mean 'perplexity_drop'? it is how much worse the candidate is than the reference, "
     "perplexity_drop_rel is that divided by it"},
    {"drop_of_comparison",
     "version: 1\nevaluate: {data: test, metrics: [max_abs], gates: [{metric: "
     "max_abs_drop, max: 0}]}\n" +
         kRest,
     "max_abs already compares with the reference, so max_abs_drop needs a baseline report", "r.yaml:2:61",
     "add evaluate.baseline, or use a gate on max_abs"},
    {"cer_alphabet", "version: 1\nevaluate: {data: test, metrics: [cer]}\n" + kRest,
     "metric cer needs an alphabet, and data set 'test' has none", "r.yaml:2:34",
     "add `alphabet: FILE` to the data set, one character a line"},
    {"boxes_unsaid", "version: 1\nevaluate: {data: test, metrics: [box_agreement]}\n" + kRest,
     "metric box_agreement needs boxes, and data set 'test' does not say where they are", "r.yaml:2:34",
     "add `boxes: {scores: OUTPUT, boxes: OUTPUT}` to the data set"},
    {"box_pairs", kHead + "boxes: {scores: [a, b], boxes: c}}\n", "2 outputs with scores, but 1 with boxes",
     "r.yaml:4:27", "they go in pairs"},
    {"box_strides", kHead + "boxes: {scores: a, boxes: b, strides: [4, 8], size: 64}}\n",
     "2 strides for 1 outputs", "r.yaml:4:58", "one for each output of `boxes`"},
    {"box_size", kHead + "boxes: {scores: a, boxes: b, strides: 4}}\n",
     "strides and size belong together: a grid of cells over an image", "r.yaml:4:27",
     "for example strides: [16, 32], size: 256"},
    {"box_key", kHead + "boxes: {scores: a, boxs: b}}\n", "unknown key 'boxs' in 'boxes'", "r.yaml:4:39",
     "did you mean 'boxes'?"},
    {"constant", kHead + "constants: {sr: 16kHz}}\n", "'16kHz' of input 'sr' is no number", "r.yaml:4:31",
     "constants: {INPUT: NUMBER}"},
    {"audio_without_frame", kHead + "kind: audio}\n",
     "audio is cut into frames, and nothing says how long they are", "r.yaml:4:6", "add `frame: N`"},
    {"context_without_frame", kHead + "context: 64}\n", "context and rate are for audio, which has frames",
     "r.yaml:4:29", "add `frame: N`"},
    {"reset_of_nothing", kHead + "reset: per_file}\n", "there is no state to be reset", "r.yaml:4:27",
     "add feedback: {INPUT: OUTPUT}"},
    {"reset_word", kHead + "reset: per_clip}\n", "'reset' cannot be 'per_clip'", "r.yaml:4:27",
     "known: per_file"},
    {"shuffled_states", kHead + "feedback: {a: b}, shuffle: 1}\n",
     "shuffle and feedback contradict each other: a state follows time", "r.yaml:4:47",
     "leave `shuffle` out"},
    {"width_without_layout", kHead + "width_from: w.npy}\n", "width_from without a layout", "r.yaml:4:32",
     "add layout: nhwc_to_nchw, nhwc or nchw"},
    {"no_file", "version: 1\n" + kRest, "the model '/nowhere/m.onnx' does not exist", "r.yaml:2:15",
     "paths in a recipe are relative to the recipe's folder", ErrorCode::kBadFile},
};

const Wrong kOptions[] = {
    {"no_equals",
     "version: 1\n" + kRest,
     "'evaluate.data' is not of the form KEY=VALUE",
     "--set evaluate.data",
     "for example --set evaluate.gates.0.max=0.01",
     ErrorCode::kUsage,
     {"evaluate.data"}},
    {"misspelt_set",
     "version: 1\n" + kRest,
     "unknown key 'calibrat' in the recipe",
     "--set calibrat.data",
     "did you mean 'calibrate'?",
     ErrorCode::kUsage,
     {"calibrat.data=x"}},
    {"set_index",
     "version: 1\nevaluate: {data: test, gates: []}\n" + kRest,
     "'7' of 'evaluate.gates.7.max' is no index into a list of 0 items",
     "--set evaluate.gates.7.max",
     "indices count from 0; one past the end appends",
     ErrorCode::kUsage,
     {"evaluate.gates.7.max=1"}},
    {"set_through_value",
     "version: 1\nname: x\n" + kRest,
     "'name.a' goes through the single value 'x'",
     "--set name.a",
     "`pare recipe show` prints the keys that there are",
     ErrorCode::kUsage,
     {"name.a=1"}},
    {"set_wrong_type",
     "version: 1\nname: x\n" + kRest,
     "'version' must be a whole number, not 'one'",
     "--set version",
     "version: of this grammar: 1",
     ErrorCode::kUsage,
     {"version=one"}},
    {"set_extends_unknown",
     "version: 1\nname: x\n" + kRest,
     "there is no built-in recipe 'int88'",
     "--set extends",
     "did you mean 'builtin/int8'?",
     ErrorCode::kUsage,
     {"extends=builtin/int88"}},
    {"variable", "version: 1\nname: ${PARE_TEST_NO_SUCH}\n" + kRest,
     "the variable ${PARE_TEST_NO_SUCH} has no value", "r.yaml:2:7",
     "give it one: --set PARE_TEST_NO_SUCH=VALUE, or in the environment"},
    {"variable_open", "version: 1\nname: \"${x\"\n" + kRest, "'${x' has a '${' without its '}'", "r.yaml:2:7",
     "write $${ for a plain ${"},
    {"builtin", "version: 1\nextends: builtin/int9\n" + kRest, "there is no built-in recipe 'int9'",
     "r.yaml:2:10", "did you mean 'builtin/int8'?"},
    {"inside_builtin", "version: 1\nextends: builtin/int8\nmodel: {path: m}\n",
     "'calibration' names no data set", "builtin/int8:9:19", "add it under `datasets`"},
};

std::string case_name(const testing::TestParamInfo<Wrong>& info) { return info.param.what; }
INSTANTIATE_TEST_SUITE_P(Yaml, WrongRecipe, testing::ValuesIn(kYaml), case_name);
INSTANTIATE_TEST_SUITE_P(Keys, WrongRecipe, testing::ValuesIn(kKeys), case_name);
INSTANTIATE_TEST_SUITE_P(Sense, WrongRecipe, testing::ValuesIn(kSense), case_name);
INSTANTIATE_TEST_SUITE_P(Options, WrongRecipe, testing::ValuesIn(kOptions), case_name);

std::vector<Error> mistakes_of(const std::string& text, bool files) {
  RecipeOptions options;
  options.check_files = files;
  try {
    parse_recipe(text, "r.yaml", "/nowhere", options);
  } catch (const ManyErrors& errors) {
    std::vector<Error> all = errors.others();
    all.insert(all.begin(), errors);
    return all;
  } catch (const Error& error) {
    return {error};
  }
  return {};
}

TEST(WrongRecipes, AllMistakesOfTheTextAtOnceInItsOrder) {
  const std::vector<Error> all = mistakes_of(
      "version: 1\nextends: builtin/int9\nmodel: {path: m, pth: n}\nseed: x\ndatasets: {a: {path: b, batch: "
      "-1}}\n",
      false);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0].where(), "r.yaml:2:10");
  EXPECT_EQ(all[1].where(), "r.yaml:3:18");
  EXPECT_EQ(all[2].where(), "r.yaml:4:7");
  EXPECT_EQ(all[3].where(), "r.yaml:5:32");
}

TEST(WrongRecipes, AUsageErrorComesFirstAndDecidesTheCode) {
  const std::vector<Error> all = mistakes_of("version: 1\nquantize: {scheme: int9}\n" + kRest, true);
  ASSERT_EQ(all.size(), 5U);  // the scheme, and four files
  EXPECT_EQ(all[0].code(), ErrorCode::kUsage);
  EXPECT_EQ(all[0].where(), "r.yaml:2:20");
  for (std::size_t i = 1; i < all.size(); ++i) EXPECT_EQ(all[i].code(), ErrorCode::kBadFile);
}

TEST(WrongRecipes, AMisspeltRequiredKeyIsOneMistake) {
  EXPECT_EQ(mistakes_of("version: 1\nmodel: {pth: m.onnx}\n", false).size(), 1U);
}

}  // namespace
}  // namespace pare
