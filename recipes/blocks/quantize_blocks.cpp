#include "recipes/blocks/quantize_blocks.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "calib/calibrate.h"
#include "engine/base/cancel.h"
#include "engine/base/error.h"
#include "engine/base/paths.h"
#include "engine/build/lower/lower_cpu.h"
#include "engine/run/session.h"
#include "eval/evaluate.h"
#include "graphsurgeon/block_cut.h"
#include "quant/placement/activation.h"
#include "quant/placement/rules.h"
#include "recipes/blocks/journal_size.h"
#include "recipes/quantize/layer_journal.h"

namespace pare {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The block's output error is measured on so many samples of calibration; where the outputs are the model's,
// which may be as wide as a vocabulary, on one.
constexpr std::int64_t kMeasured = 4;

std::string time_text(double seconds) {
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  return seconds < 7200 ? fmt::format("{:.0f} min", seconds / 60) : fmt::format("{:.1f} h", seconds / 3600);
}

// Names every step after the block, with the time that is left for all.
class BlockProgress final : public Progress {
 public:
  BlockProgress(Progress& to, std::size_t blocks) : to_(to), blocks_(blocks) {}

  void block(std::size_t index, double seconds_left) {
    prefix_ = fmt::format("block {} of {}", index + 1, blocks_);
    if (seconds_left > 0) prefix_ += fmt::format(" (about {} left)", time_text(seconds_left));
  }
  void begin(const std::string& what, std::int64_t total) override {
    to_.begin(prefix_ + ": " + what, total);
  }
  void advance(std::int64_t count) override { to_.advance(count); }
  void end() override { to_.end(); }

 private:
  Progress& to_;
  std::size_t blocks_;
  std::string prefix_;
};

class Blocks {
 public:
  Blocks(const BlocksInput& input, const QuantizeChoices& choices, const BlockOptions& options)
      : in_(input),
        choices_(choices),
        options_(options),
        graph_(*input.graph),
        blocks_(find_blocks(graph_)),
        progress_(input.progress != nullptr ? *input.progress : no_progress(), blocks_.size()),
        assembly_(graph_) {}

  BlocksOutcome run() {
    check();
    const DiskNeed need = disk_need(graph_, blocks_, choices_.spec);
    out_.journal_foreseen = need.blocks;
    check_room(in_.folder, need.blocks - journaled() + in_.models * need.model,
               "the blocks and the model behind them");
    ActivationOptions held;
    held.type = options_.activations;
    held.memory_bytes = options_.memory_bytes;
    held.folder = in_.folder;
    ActivationStore store(*in_.data, held, *in_.pool);
    out_.data_hash = store.data_hash();
    out_.samples = in_.samples;
    const Clock::time_point start = Clock::now();
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      check_cancelled();
      progress_.block(
          i, i == 0 ? 0 : since(start) / static_cast<double>(i) * static_cast<double>(blocks_.size() - i));
      with_context(fmt::format("quantizing block '{}'", blocks_[i].name), [&] { block(i, store); });
    }
    out_.journal_bytes = journaled();
    out_.whole = assembly_.finish();
    out_.whole.plan.placement.unmatched = quant::RuleBook(choices_.spec).unmatched(graph_);
    return std::move(out_);
  }

 private:
  void check() const {
    if (blocks_.empty())
      throw make_error(ErrorCode::kUnsupported,
                       "the model does not fall into blocks: nowhere does one value carry all")
          .hint("leave quantize.blocks out: the whole graph is quantized at once");
    if (choices_.spec.target == quant::Target::kOnnxRuntime && choices_.spec.activations.active())
      throw make_error(ErrorCode::kUnsupported,
                       "target onnxruntime quantizes what layers hand over, which blocks cannot share")
          .hint("target: pare or tensorrt, or leave quantize.blocks out");
    if (choices_.objective == "model")
      throw make_error(ErrorCode::kUnsupported,
                       "objective 'model' looks at predictions, which a block has none of")
          .at("quantize.objective")
          .hint("objective: layer, or leave quantize.blocks out");
    if (options_.inputs != "quantized" && options_.inputs != "float")
      throw make_error(ErrorCode::kUsage, "blocks are fed by 'quantized' or 'float', not '{}'",
                       options_.inputs)
          .at("quantize.blocks.inputs")
          .hint("quantized, the default, or float");
    if (options_.activations != DType::kF32 && options_.activations != DType::kBF16)
      throw make_error(ErrorCode::kUsage, "activations are held as float32 or bfloat16")
          .hint("quantize.blocks.activations: float32 or bfloat16");
  }

  std::string path_of(std::size_t i) const { return join_path(in_.folder, fmt::format("block-{:04d}", i)); }

  // Bytes of the blocks' files that are there.
  std::int64_t journaled() const {
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < blocks_.size(); ++i)
      for (const std::string& path : {path_of(i), path_of(i) + ".h5"})
        if (is_regular_file(path)) bytes += static_cast<std::int64_t>(file_size(path));
    return bytes;
  }

  std::string key(std::size_t i, const Graph& part, const ActivationStore& store) const {
    Sha256 hash;
    const auto add = [&](const std::string& text) {
      hash.update_number(text.size());
      hash.update(text);
    };
    add(in_.base);
    add(options_.inputs);
    add(name(options_.activations));
    add(store.data_hash().hex());
    add(fmt::format("{} {} {} {} {}", in_.samples, in_.held_out.begin, in_.held_out.end, i, blocks_.size()));
    add(to_text(part));
    return hex(hash.finish());
  }

  std::string input_name(std::size_t i) const {
    return blocks_[i].in == ValueId::kNone ? "" : graph_.value(blocks_[i].in).name;
  }

  void block(std::size_t i, ActivationStore& store) {
    const bool as_it_is = stays_float(graph_, blocks_[i], choices_, *in_.pool);
    const Graph part =
        extract_block(graph_, blocks_[i], *in_.pool, as_it_is ? BlockWeights::kViews : BlockWeights::kFloats);
    const std::string path = path_of(i);
    const std::string key = in_.temporary ? blocks_[i].name : this->key(i, part, store);
    std::optional<BlockOutcome> done = load_block(path, key, graph_);
    if (done) {
      ++out_.resumed;
    } else {
      BlockOutcome made = as_it_is ? left_float(i, part) : solve(i, part, store, path);
      save_block(path, key, made, graph_);
      made = {};
      // What is taken over by a resumed run is what this one goes on with; and it takes no memory.
      std::string why;
      done = load_block(path, key, graph_, &why);
      if (!done) fail(ErrorCode::kInternal, "'{}' does not read back: {}", path, why);
      remove_tree(path + ".layers");
    }
    if (in_.message) in_.message(line(i, done->record));
    out_.blocks.push_back(done->record);
    assembly_.add(done->outcome, input_name(i), blocks_[i].name);
    if (i + 1 < blocks_.size())
      advance(options_.inputs == "float" ? part : done->outcome.quantized, i, store);
  }

  std::string line(std::size_t i, const BlockRecord& r) const {
    std::string text = fmt::format("block {} of {}, {}: {} layers in {}", i + 1, blocks_.size(), r.name,
                                   r.layers, time_text(r.seconds));
    if (std::isfinite(r.output_sqnr_db)) text += fmt::format(", output {:.2f} dB", r.output_sqnr_db);
    return text;
  }

  // Its weights stay views of the model's files: the head, as a rule, the largest matrix of all.
  BlockOutcome left_float(std::size_t i, const Graph& part) const {
    BlockOutcome made;
    made.outcome.source = part;
    made.outcome.plan.placement.skipped =
        quant::place(extract_block(graph_, blocks_[i], *in_.pool, BlockWeights::kSizes), choices_.spec)
            .skipped;
    made.outcome = compacted(std::move(made.outcome));
    made.record.name = blocks_[i].name;
    made.record.output_sqnr_db = std::nan("");
    return made;
  }

  BlockOutcome solve(std::size_t i, const Graph& part, const ActivationStore& store,
                     const std::string& path) {
    const Clock::time_point start = Clock::now();
    const std::vector<InputSpec> inputs = model_inputs(part);
    const std::unique_ptr<Dataset> calibration = store.data(inputs, in_.samples);
    const std::unique_ptr<Dataset> held_out = store.data(inputs, 0);
    LayerJournal journal(path + ".layers", in_.base + blocks_[i].name);
    QuantizeInput input;
    input.graph = &part;
    input.calibration = calibration.get();
    if (in_.held_out.end > in_.held_out.begin) {
      input.held_out = held_out.get();
      input.held_out_range = in_.held_out;
    }
    input.pool = in_.pool;
    input.progress = &progress_;
    if (!in_.temporary) input.journal = &journal;
    const std::vector<CalibratedValue> values = values_to_watch(part, choices_.spec);
    if (!values.empty()) {
      CalibrateOptions options;
      options.pool = in_.pool;
      options.progress = &progress_;
      input.stats = calibrate(part, values, *calibration, options).statistics.tensors;
    }
    BlockOutcome made;
    made.outcome = compacted(quantize_model(input, choices_));
    made.record.name = blocks_[i].name;
    made.record.layers = static_cast<std::int64_t>(made.outcome.plan.weights.size());
    for (const ScoredCandidate& candidate : made.outcome.candidates)
      if (candidate.chosen) made.record.candidate = candidate.name;
    const std::int64_t samples = blocks_[i].out == ValueId::kNone ? 1 : kMeasured;
    made.record.output_sqnr_db = measure(part, made.outcome.quantized, *calibration, samples);
    made.record.seconds = since(start);
    return made;
  }

  double measure(const Graph& part, const Graph& quantized, Dataset& data, std::int64_t samples) const {
    EvaluateOptions options;
    options.pool = in_.pool;
    const SampleRange range{0, std::min(samples, data.sample_count())};
    if (data.fixed_batch() > 1) return std::nan("");
    const BatchOutputs wanted = collect_outputs(part, data, range, options);
    return output_sqnr_db(wanted, collect_outputs(quantized, data, range, options));
  }

  // The activations in front of the next block, in place of those in front of this one.
  void advance(const Graph& graph, std::size_t i, ActivationStore& store) {
    const std::unique_ptr<Dataset> data = store.data(model_inputs(graph), 0);
    const Lowered lowered = lower_for_cpu(graph);
    SessionOptions session_options;
    session_options.pool = in_.pool;
    Session session(lowered.graph, session_options);
    const std::string& name = graph_.value(blocks_[i].out).name;
    const std::int64_t batch = data->batch_size(), count = data->sample_count();
    ProgressStep step(progress_, "activations for the next", count);
    for (std::int64_t begin = 0, end = 0; begin < count; begin = end) {
      check_cancelled();
      end = data->batch_end(begin, count, batch);
      const std::vector<Tensor> outputs = session.run(data->read(begin, end, in_.pool).inputs);
      store.put(name, begin, outputs.at(0));
      step.advance(end - begin);
    }
    out_.activation_bytes = std::max(out_.activation_bytes, store.bytes());
    out_.activations_in_file = out_.activations_in_file || store.in_file();
  }

  const BlocksInput& in_;
  const QuantizeChoices& choices_;
  const BlockOptions& options_;
  const Graph& graph_;
  std::vector<GraphBlock> blocks_;
  BlockProgress progress_;
  BlockAssembly assembly_;
  BlocksOutcome out_;
};

}  // namespace

bool stays_float(const Graph& graph, const GraphBlock& block, const QuantizeChoices& choices,
                 ThreadPool& pool) {
  if (choices.rotate) return false;
  const quant::Placement placement =
      quant::place(extract_block(graph, block, pool, BlockWeights::kSizes), choices.spec);
  return placement.weights.empty() && placement.activations.empty() && placement.biases.empty();
}

BlocksOutcome quantize_blocks(const BlocksInput& input, const QuantizeChoices& choices,
                              const BlockOptions& options) {
  PARE_ASSERT(input.graph != nullptr && input.data != nullptr && input.pool != nullptr);
  quant::check(choices.spec);
  return Blocks(input, choices, options).run();
}

}  // namespace pare
