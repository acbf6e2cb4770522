// Every key of a recipe, once, with its one-line meaning. DESIGN's "Recipes" in executable form.
#include "graphsurgeon/passes/passes.h"
#include "recipes/grammar/fields.h"

namespace pare {
namespace {

const std::vector<const char*> kFormats = {"int8",  "uint8", "int16", "uint16", "fp8",   "fp8_e5m2", "int4",
                                           "uint4", "int3",  "int2",  "nvfp4",  "mxfp4", "mxfp8",    "none"};
const std::vector<const char*> kMethods = {"auto", "rtn",         "search",   "local_hessian", "gptq",
                                           "awq",  "smoothquant", "equalize", "learned",       "low_rank"};
const std::vector<const char*> kExports = {"qdq_onnx",           "trt_onnx", "qoperator", "matmul_nbits",
                                           "compressed_tensors", "autoawq",  "gptq",      "gptq_v2",
                                           "modelopt",           "gguf",     "trt_cache"};

std::vector<const char*> pass_names() {
  std::vector<const char*> names;
  for (const Pass* pass : all_passes()) names.push_back(pass->name);
  return names;
}

void describe_model(Fields& f, ModelSpec& model) {
  f.text({.key = "path", .doc = "ONNX file, checkpoint folder or GGUF", .required = true, .path = true},
         model.path);
}

void describe_calibrate(Fields& f, CalibrateSpec& c) {
  f.text({.key = "data", .doc = "name of the data set to calibrate on"}, c.data);
  f.text({.key = "stats", .doc = "use this statistics file instead of collecting", .path = true}, c.stats);
  f.integer({.key = "holdout",
             .doc = "further samples that choose between candidates, never calibrated on",
             .min = 1,
             .max = 1e9},
            c.holdout);
  f.number({.key = "max_nonfinite",
            .doc = "share of NaN and infinite values of a tensor above which the run stops",
            .min = 0,
            .max = 1},
           c.max_nonfinite);
}

void describe_weights(Fields& f, WeightSpec& w) {
  f.text({.key = "format", .doc = "number format of the weights", .choices = kFormats}, w.format);
  f.text({.key = "granularity",
          .doc = "what shares a scale; block: of FP8 as many outputs as inputs, else as group",
          .choices = {"tensor", "channel", "group", "block"}},
         w.granularity);
  f.integer({.key = "group_size", .doc = "inputs that share a scale; 0: the format's", .min = 0, .max = 1e6},
            w.group_size);
  f.maybe_boolean({.key = "symmetric", .doc = "no zero point"}, w.symmetric);
  f.text({.key = "search", .doc = "how scales are found", .choices = {"amax", "mse"}}, w.search);
}

void describe_activations(Fields& f, ActivationSpec& a) {
  f.text({.key = "format", .doc = "number format of the activations", .choices = kFormats}, a.format);
  f.text({.key = "granularity", .doc = "what shares a scale", .choices = {"tensor", "channel", "token"}},
         a.granularity);
  f.text({.key = "calibrator",
          .doc = "how ranges are chosen; auto: by measured drift",
          .choices = {"auto", "minmax", "entropy", "mse", "percentile", "percentile(...)"}},
         a.calibrator);
  f.maybe_boolean({.key = "symmetric", .doc = "no zero point"}, a.symmetric);
  f.maybe_boolean({.key = "dynamic", .doc = "scales are made at run time; no calibration"}, a.dynamic);
  f.text({.key = "search",
          .doc = "how blocks find their scales at run time; mse: of a few the one of least error",
          .choices = {"amax", "mse"}},
         a.search);
}

void describe_match(Fields& f, MatchSpec& m) {
  f.texts({.key = "name",
           .doc = "layers: names of nodes or of what they compute, or re:PATTERN, which fits whole names"},
          m.name);
  f.texts({.key = "op", .doc = "operators"}, m.op);
  f.texts({.key = "tensor", .doc = "tensor names"}, m.tensor);
  f.texts({.key = "dtype", .doc = "element types of constants that a layer reads"}, m.dtype);
  f.texts({.key = "block", .doc = "numbers of blocks of a language model"}, m.block);
}

void describe_rule(Fields& f, RuleSpec& rule) {
  bool present = true;
  f.section({.key = "match", .doc = "what the rule is about", .required = true}, present,
            [&](Fields& inner) { describe_match(inner, rule.match); });
  f.maybe_boolean({.key = "quantize", .doc = "false: leave it in float"}, rule.quantize);
  f.text({.key = "method", .doc = "as in quantize", .choices = kMethods}, rule.method);
  present = true;
  f.section({.key = "weights", .doc = "as in quantize"}, present,
            [&](Fields& inner) { describe_weights(inner, rule.weights); });
  present = true;
  f.section({.key = "activations", .doc = "as in quantize"}, present,
            [&](Fields& inner) { describe_activations(inner, rule.activations); });
}

void describe_blocks(Fields& f, BlocksSpec& b) {
  f.text({.key = "inputs",
          .doc = "what a block is fed by: the quantized blocks before it, or the float ones",
          .choices = {"quantized", "float"}},
         b.inputs);
  f.text({.key = "activations",
          .doc = "how the samples between blocks are held",
          .choices = {"float32", "bfloat16"}},
         b.activations);
  f.integer({.key = "memory", .doc = "MiB of them in memory; more go to a file", .min = 0, .max = 1e9},
            b.memory);
}

void describe_quantize(Fields& f, QuantizeSpec& q) {
  f.text({.key = "target",
          .doc = "whose fusions decide where Q/DQ stand",
          .choices = {"pare", "tensorrt", "onnxruntime"}},
         q.target);
  f.text({.key = "scheme", .doc = "formats of weights and activations by one name (pare ops --formats)"},
         q.scheme);
  f.text({.key = "method", .doc = "how codes are chosen", .choices = kMethods}, q.method);
  bool present = true;
  f.section({.key = "weights", .doc = "beyond what the scheme says"}, present,
            [&](Fields& inner) { describe_weights(inner, q.weights); });
  present = true;
  f.section({.key = "activations", .doc = "beyond what the scheme says"}, present,
            [&](Fields& inner) { describe_activations(inner, q.activations); });
  f.list(
      {.key = "rules", .doc = "exceptions, in order, later wins"}, q.rules.size(),
      [&](std::size_t n) { q.rules.resize(n); },
      [&](Fields& inner, std::size_t i) { describe_rule(inner, q.rules[i]); });
  f.texts({.key = "ops", .doc = "only these operators are quantized"}, q.ops);
  f.texts({.key = "ignore", .doc = "layers left in float: names, or re:PATTERN, which fits whole names"},
          q.ignore);
  f.texts({.key = "share",
           .doc = "layers whose scales other runtimes need shared",
           .choices = {"qkv", "gate_up"}},
          q.share);
  f.integer({.key = "group_size", .doc = "inputs that share a scale; 0: the format's", .min = 0, .max = 1e6},
            q.group_size);
  f.maybe_number(
      {.key = "alpha", .doc = "smoothquant: strength for all layers; absent: searched", .min = 0, .max = 1},
      q.alpha);
  f.integer(
      {.key = "rank", .doc = "low_rank: columns of the products beside a weight", .min = 1, .max = 4096},
      q.rank);
  f.text({.key = "kv_cache",
          .doc = "keys and values of a language model: a calibrated scale each; absent: float",
          .choices = {"fp8", "int8"}},
         q.kv_cache);
  f.text({.key = "inputs",
          .doc = "what layers are solved for: inputs of the float model, or those that quantized layers give",
          .choices = {"float", "quantized"}},
         q.inputs);
  f.text({.key = "objective",
          .doc = "what gptq and learned lower: errors of layer outputs, or what these do to a language "
                 "model's predictions",
          .choices = {"layer", "model"}},
         q.objective);
  f.maybe_number({.key = "output_damp",
                  .doc = "objective model: share of the mean diagonal added to moments of output gradients; "
                         "absent: 0.01",
                  .min = 0,
                  .max = 1e6},
                 q.output_damp);
  f.text({.key = "scaling",
          .doc = "factors a channel, before codes are chosen by the method",
          .choices = {"awq", "smoothquant", "equalize"}},
         q.scaling);
  f.boolean({.key = "rotate", .doc = "turn residual stream and heads by Hadamard matrices, in the weights"},
            q.rotate);
  f.maybe_boolean({.key = "bias_correction", .doc = "mean errors out of biases; absent: auto tries it"},
                  q.bias_correction);
  f.maybe_boolean({.key = "act_order", .doc = "gptq: most active inputs first"}, q.act_order);
  f.text({.key = "column_order",
          .doc = "gptq: the order that inputs are coded in; diagonal is act_order, group_aware keeps groups "
                 "together; absent: diagonal",
          .choices = {"natural", "diagonal", "group_aware"}},
         q.column_order);
  f.maybe_number(
      {.key = "damp", .doc = "gptq: share of the mean diagonal that is added", .min = 0, .max = 10}, q.damp);
  f.numbers({.key = "percentiles", .doc = "that calibrator auto tries", .min = 0, .max = 100}, q.percentiles);
  f.maybe_section({.key = "blocks", .doc = "block by block, not the whole graph at once (docs/blocks.md)"},
                  q.blocks, describe_blocks);
}

void describe_evaluate(Fields& f, EvaluateSpec& e) {
  f.text({.key = "data", .doc = "name of the data set to judge on", .required = true}, e.data);
  f.texts({.key = "metrics", .doc = "what is computed (docs/metrics.md)"}, e.metrics);
  f.list(
      {.key = "gates", .doc = "limits; one that fails ends the run with exit code 1"}, e.gates.size(),
      [&](std::size_t n) { e.gates.resize(n); },
      [&](Fields& inner, std::size_t i) {
        inner.text(
            {.key = "metric", .doc = "a metric, or its name with _drop or _drop_rel", .required = true},
            e.gates[i].metric);
        inner.maybe_number({.key = "max", .doc = "largest value that passes"}, e.gates[i].max);
        inner.maybe_number({.key = "min", .doc = "least value that passes"}, e.gates[i].min);
      });
  f.text({.key = "baseline", .doc = "report.json that _drop is measured from", .path = true}, e.baseline);
  f.integer(
      {.key = "layer_samples", .doc = "samples for figures by layer and clipping", .min = 0, .max = 1e9},
      e.layer_samples);
  f.integer({.key = "batch", .doc = "samples at a time; 0: the data set's", .min = 0, .max = 65536}, e.batch);
  f.text({.key = "arithmetic", .doc = "how a quantized model runs", .choices = {"both", "fake", "integer"}},
         e.arithmetic);
}

void describe_build(Fields& f, BuildSpec& b) {
  f.text({.key = "device", .doc = "auto, cpu, cuda or cuda:N"}, b.device);
  f.text({.key = "precision",
          .doc = "how float values are stored (as_quantized: fp16 on a GPU, fp32 on the CPU); int8, fp8 and "
                 "as_quantized: layers stay as Q/DQ ask for also where float is faster",
          .choices = {"as_quantized", "fp16", "bf16", "fp32", "tf32", "int8", "fp8"}},
         b.precision);
  f.text({.key = "timing_cache", .doc = "tactics timed before; new ones are added", .path = true},
         b.timing_cache);
  f.boolean({.key = "require_cached_tactics", .doc = "a layer that is not in the cache is an error"},
            b.require_cached_tactics);
  f.text_map({.key = "profiles", .doc = "sizes that an open dimension may have: MINxOPTxMAX"}, b.profiles);
}

void describe_export(Fields& f, ExportSpec& e) {
  f.text({.key = "model", .doc = "what is written", .choices = kExports}, e.model);
  f.integer({.key = "opset",
             .doc = "ONNX opset; 0: the input's, unless the format needs more",
             .min = 0,
             .max = 100},
            e.opset);
  f.boolean({.key = "head", .doc = "checkpoint formats: lm_head is quantized too"}, e.head);
  f.integer({.key = "shard_size", .doc = "checkpoint formats: largest file in bytes; 0: 5 GiB", .min = 0},
            e.shard_size);
}

}  // namespace

static void describe_boxes(Fields& f, BoxSpec& b) {
  f.texts({.key = "scores", .doc = "outputs with one score a box", .required = true}, b.scores);
  f.texts({.key = "boxes",
           .doc = "outputs with four or more numbers a box, in pairs with scores",
           .required = true},
          b.boxes);
  f.text({.key = "form",
          .doc = "of the first four: centre and size, or corners",
          .choices = {"cxcywh", "xyxy", "yxyx"}},
         b.form);
  f.integers({.key = "strides",
              .doc = "pixels between the cells that boxes are relative to",
              .min = 1,
              .max = 65535},
             b.strides);
  f.integers({.key = "size",
              .doc = "of the image under the cells: side, or height and width",
              .min = 1,
              .max = 65535},
             b.size);
  f.maybe_boolean({.key = "sigmoid", .doc = "scores are logits"}, b.sigmoid);
  f.number({.key = "threshold", .doc = "a box counts from this score on", .min = 0, .max = 1}, b.threshold);
  f.number({.key = "nms", .doc = "overlap above which only the best box stays", .min = 0, .max = 1}, b.nms);
  f.number({.key = "iou", .doc = "overlap from which two boxes are the same", .min = 0, .max = 1}, b.iou);
}

void describe_dataset(Fields& f, DatasetEntry& entry) {
  DatasetSpec& d = entry.spec;
  f.text(
      {.key = "path", .doc = "npy, npz, HDF5, folder of images, clips, text", .required = true, .path = true},
      d.path);
  f.text({.key = "kind",
          .doc = "of file; absent: by what stands at path",
          .choices = {"npy", "npz", "hdf5", "images", "audio", "text"}},
         d.kind);
  f.text({.key = "input", .doc = "model input that it feeds"}, d.input);
  std::map<std::string, std::string> inputs(d.inputs.begin(), d.inputs.end());
  f.text_map({.key = "inputs", .doc = "model input: key in the npz or HDF5 file"}, inputs);
  d.inputs.assign(inputs.begin(), inputs.end());
  f.text({.key = "labels",
          .doc = "npy, csv or txt file, FILE.json:KEY, or a key in the npz or HDF5 file",
          .path = true},
         d.labels);
  std::string layout = name(d.layout);
  f.text({.key = "layout",
          .doc = "where the channels are, in the file and for the model",
          .choices = {"nchw", "nhwc", "nhwc_to_nchw", "nchw_to_nhwc"}},
         layout);
  if (!layout.empty()) set_dataset_key(d, "layout", layout);
  f.maybe_number({.key = "scale", .doc = "(x * scale - mean) / std; 1/255 may be written"}, d.scale);
  f.numbers({.key = "mean", .doc = "one number, or one a channel"}, d.mean);
  f.numbers({.key = "std", .doc = "one number, or one a channel"}, d.std);
  f.integers({.key = "resize", .doc = "shorter side, or height and width", .min = 1, .max = 65535}, d.resize);
  f.integers({.key = "crop", .doc = "square, or height and width, from the middle", .min = 1, .max = 65535},
             d.crop);
  f.text({.key = "channels", .doc = "order of colours", .choices = {"rgb", "bgr", "gray"}}, d.channels);
  f.maybe_number({.key = "alpha", .doc = "a fourth channel of this value"}, d.alpha);
  f.text({.key = "width_from", .doc = "widths that samples are cut to, as labels are given", .path = true},
         d.width_from);
  f.integer({.key = "frame", .doc = "audio: new values of a sample", .min = 0, .max = 268435456}, d.frame);
  f.integer({.key = "context", .doc = "audio: values before them", .min = 0, .max = 268435456}, d.context);
  f.integer({.key = "rate", .doc = "audio: Hz of .wav files; 0: 16000", .min = 0, .max = 1e9}, d.rate);
  std::map<std::string, std::string> feedback(d.feedback.begin(), d.feedback.end());
  f.text_map({.key = "feedback", .doc = "stateful models: input, and the output of the run before"},
             feedback);
  d.feedback.assign(feedback.begin(), feedback.end());
  f.text({.key = "reset", .doc = "when the state is zero again", .choices = {"per_file"}}, d.reset);
  f.text_map({.key = "constants", .doc = "inputs of one value: a sample rate"}, entry.constants);
  d.constants.clear();
  for (const auto& [input, value] : entry.constants) {
    double number = 0;
    if (number_from_text(value, number)) d.constants.emplace_back(input, number);
  }
  f.text({.key = "alphabet", .doc = "CTC: file with one character a line", .path = true}, d.alphabet);
  f.maybe_integer({.key = "blank", .doc = "CTC: class of the blank; absent: 0", .min = 0, .max = 1e9},
                  d.blank);
  f.maybe_boolean({.key = "ignore_spaces", .doc = "CTC: spaces are no errors"}, d.ignore_spaces);
  f.maybe_number({.key = "threshold", .doc = "frames: what is above is a yes; absent: 0.5"}, d.threshold);
  bool boxes = d.boxes.given();
  f.section({.key = "boxes", .doc = "detectors: how the outputs become boxes"}, boxes,
            [&](Fields& inner) { describe_boxes(inner, d.boxes); });
  f.integer({.key = "skip", .doc = "the first so many are left out", .min = 0, .max = 1e12}, d.skip);
  f.integer({.key = "samples", .doc = "at most so many; 0: all", .min = 0, .max = 1e12}, d.samples);
  f.integer({.key = "batch", .doc = "samples read at once", .min = 1, .max = 65536}, d.batch);
  std::optional<std::int64_t> shuffle;
  if (d.shuffle) shuffle = static_cast<std::int64_t>(*d.shuffle);
  f.maybe_integer(
      {.key = "shuffle", .doc = "seed; absent: the first samples in file order", .min = 0, .max = 9e15},
      shuffle);
  if (shuffle) d.shuffle = static_cast<std::uint64_t>(*shuffle);
  f.integer({.key = "max_nonfinite", .doc = "NaN and infinities that are let pass", .min = 0, .max = 9e15},
            d.max_nonfinite);
  f.integer({.key = "window", .doc = "text: tokens of a sample", .min = 0, .max = 1e9}, d.window);
  f.integer({.key = "stride", .doc = "text: tokens between the starts of samples", .min = 0, .max = 1e9},
            d.stride);
  f.text({.key = "bos", .doc = "text: begin-of-sequence tokens", .choices = {"none", "begin", "every"}},
         d.bos);
  f.text(
      {.key = "join", .doc = "text: cut from the whole, or each line alone", .choices = {"whole", "lines"}},
      d.join);
  f.text({.key = "field", .doc = "jsonl: key that holds the text"}, d.field);
  f.text({.key = "tokenizer",
          .doc = "text: checkpoint folder or tokenizer.json; absent: the model's",
          .path = true},
         d.tokenizer);
}

void describe(Fields& f, Recipe& r) {
  f.integer({.key = "version", .doc = "of this grammar: 1", .required = true, .min = 1, .max = 1}, r.version);
  f.text({.key = "extends", .doc = "start from builtin/NAME or another recipe file"}, r.extends);
  f.text({.key = "name", .doc = "of the run; its folder is runs/NAME"}, r.name);
  bool present = true;
  f.section({.key = "model", .doc = "what is quantized", .required = true}, present,
            [&](Fields& inner) { describe_model(inner, r.model); });
  std::vector<std::string> names;
  for (const auto& entry : r.datasets) names.push_back(entry.first);
  f.named({.key = "datasets", .doc = "data by name"}, names,
          [&](Fields& inner, const std::string& name) { describe_dataset(inner, r.datasets[name]); });
  f.texts({.key = "surgery", .doc = "graph edits before anything else", .choices = {"simplify", "recognize"}},
          r.surgery);
  f.texts({.key = "surgery_without",
           .doc = "passes to leave out (pare surgeon simplify --list-passes)",
           .choices = pass_names()},
          r.surgery_without);
  f.maybe_section({.key = "calibrate", .doc = "what the activations look like"}, r.calibrate,
                  describe_calibrate);
  f.maybe_section({.key = "quantize", .doc = "formats, placement, algorithm"}, r.quantize, describe_quantize);
  f.maybe_section({.key = "evaluate", .doc = "how far the result is from the original"}, r.evaluate,
                  describe_evaluate);
  f.maybe_section({.key = "build", .doc = "an engine of the result, model.engine"}, r.build, describe_build);
  present = true;
  f.section({.key = "export", .doc = "how the result is written"}, present,
            [&](Fields& inner) { describe_export(inner, r.export_as); });
  f.texts({.key = "report",
           .doc = "which reports are written; report.json always is",
           .choices = {"json", "html", "markdown", "junit"}},
          r.report);
  f.integer({.key = "seed", .doc = "of everything random", .min = 0, .max = 9e15}, r.seed);
}

}  // namespace pare
