#include "cli/commands.h"
#include "datasets/dataset.h"
#include "engine/base/atomic_file.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/paths.h"
#include "engine/base/sha256.h"
#include "graphsurgeon/load.h"
#include "recipes/grammar/load.h"
#include "recipes/grammar/schema.h"
#include "recipes/pipeline.h"

namespace pare {
namespace {

class RecipeList final : public Command {
 public:
  const char* name() const override { return "recipe list"; }
  const char* what() const override { return "the built-in recipes"; }
  void declare(Args& args) override { args.example("pare recipe list"); }

  int run(Context& context) override {
    Json list = Json::array();
    for (const BuiltinRecipe& recipe : builtin_recipes()) {
      context.print(fmt::format("builtin/{:<16} {}", recipe.name, recipe.what));
      list.push_back({{"name", fmt::format("builtin/{}", recipe.name)}, {"what", recipe.what}});
    }
    context.document()["recipes"] = std::move(list);
    return 0;
  }
};

class RecipeShow final : public Command {
 public:
  const char* name() const override { return "recipe show"; }
  const char* what() const override { return "a built-in recipe, or a recipe with everything filled in"; }

  void declare(Args& args) override {
    args.positional("RECIPE", path_, "builtin/NAME, or a recipe file")
        .option("--set", "A.B=VALUE", sets_, "set a key first")
        .example("pare recipe show builtin/int8 > my-recipe.yaml");
  }

  int run(Context& context) override {
    std::string text;
    if (path_.rfind("builtin/", 0) == 0) {
      text = find_builtin(path_, path_).text;
    } else {
      RecipeOptions options;
      options.sets = sets_;
      options.check_files = false;
      text = load_recipe(path_, options).text;
    }
    context.document()["text"] = text;
    text.pop_back();
    context.print(text);
    return 0;
  }

 private:
  std::string path_;
  std::vector<std::string> sets_;
};

class RecipeCheck final : public Command {
 public:
  const char* name() const override { return "recipe check"; }
  const char* what() const override { return "all that is wrong with a recipe, without running it"; }

  void declare(Args& args) override {
    args.positional("RECIPE", path_, "recipe file")
        .option("--set", "A.B=VALUE", sets_, "set a key first")
        .flag("--text-only", text_only_, "do not look at the files that it names")
        .example("pare recipe check resnet-int8.yaml");
  }

  int run(Context& context) override {
    RecipeOptions options;
    options.sets = sets_;
    options.check_files = !text_only_;
    const LoadedRecipe loaded = load_recipe(path_, options);
    if (!text_only_)
      for (const std::string& warning : check_run(loaded)) context.warn(warning);
    const std::string hash = hex(sha256(loaded.text));
    context.document()["name"] = loaded.recipe.name;
    context.document()["recipe_hash"] = hash;
    context.print(
        fmt::format("{}: fine (recipe '{}', hash {})", path_, loaded.recipe.name, hash.substr(0, 12)));
    return 0;
  }

 private:
  std::string path_;
  std::vector<std::string> sets_;
  bool text_only_ = false;
};

class RecipeSchema final : public Command {
 public:
  const char* name() const override { return "recipe schema"; }
  const char* what() const override { return "the JSON schema of recipes, for editors"; }
  void declare(Args& args) override { args.example("pare recipe schema > pare-recipe.schema.json"); }

  int run(Context& context) override {
    std::string text = recipe_schema();
    context.document()["schema"] = parse_json(text, "schema");
    text.pop_back();
    context.print(text);
    return 0;
  }
};

class RecipeInit final : public Command {
 public:
  const char* name() const override { return "recipe init"; }
  const char* what() const override { return "write a recipe to start from"; }

  void declare(Args& args) override {
    args.positional("FILE", path_, "where to write it")
        .option("--model", "MODEL", model_, "the model", "model.path")
        .required()
        .option("--extends", "BASE", base_,
                "what to start from; absent: builtin/int8, of a checkpoint builtin/llm-int4-awq", "extends")
        .flag("--force", force_, "replace the file if it is there")
        .example("pare recipe init resnet-int8.yaml --model resnet.onnx")
        .example("pare recipe init llama-int4.yaml --model llama");
  }

  int run(Context& context) override {
    if (path_exists(path_) && !force_)
      throw make_error(ErrorCode::kUsage, "'{}' is already there", path_).hint("--force replaces it");
    const ModelKind kind = model_kind(model_);  // an error when there is none
    const bool text_model = kind == ModelKind::kCheckpoint || kind == ModelKind::kGguf;
    if (base_.empty()) base_ = text_model ? "builtin/llm-int4-awq" : "builtin/int8";
    find_builtin(base_, "--extends");
    const std::string head = fmt::format(
        "version: 1\n"
        "extends: {}\n"
        "name: {}\n"
        "model: {{path: {}}}{}\n",
        base_.rfind("builtin/", 0) == 0 ? base_ : "builtin/" + base_, file_stem(path_), path_from_recipe(),
        model_[0] == '/' ? "" : "                       # relative to this file");
    write_file_atomically(path_, head + (text_model ? checkpoint_rest(kind) : onnx_rest()));
    context.document()["output"] = path_;
    context.print(fmt::format("wrote {}: fill in the data sets, then `pare recipe check {}`", path_, path_));
    return 0;
  }

 private:
  // Paths in a recipe start at its own folder.
  std::string path_from_recipe() const {
    const std::string folder = parent_path(path_);
    return folder == "." ? model_ : relative_path(model_, folder);
  }

  // The gates of the base, to be set by one's own model.
  std::string gates_of_base() const {
    const TreeNode tree = parse_yaml(find_builtin(base_, "--extends").text, std::make_shared<TreeSource>());
    const TreeNode* evaluate = tree.find("evaluate");
    const TreeNode* gates = evaluate != nullptr ? evaluate->find("gates") : nullptr;
    std::string text;
    if (gates != nullptr)
      for (const TreeNode& gate : gates->items) {
        std::string keys;
        for (const TreeMember& member : gate.members)
          keys += fmt::format("{}{}: {}", keys.empty() ? "" : ", ", member.key, member.value.text);
        text += fmt::format("    - {{{}}}\n", keys);
      }
    return text.empty() ? "    - {metric: kl, max: 0.02}\n" : text;
  }

  std::string checkpoint_rest(ModelKind kind) const {
    return fmt::format(
        "datasets:\n"
        "  # .txt or .jsonl; the checkpoint's tokenizer cuts them into windows\n"
        "  calibration: {{path: calibration.txt, window: 512, samples: 128}}\n"
        "  test: {{path: test.txt, window: 512, samples: 64}}\n"
        "evaluate:\n"
        "  data: test\n"
        "  metrics: [perplexity, kl, token_agreement]\n"
        "  gates:\n"
        "{}"
        "export: {{model: {}}}         # vLLM reads compressed_tensors; autoawq, gptq, modelopt, gguf\n",
        gates_of_base(), kind == ModelKind::kGguf ? "qdq_onnx" : "compressed_tensors");
  }

  // By the inputs: images are most likely stored as bytes with the channels last; other arrays as they are.
  std::string onnx_rest() const {
    const Graph graph = load_model(model_);
    const std::vector<InputSpec> inputs = model_inputs(graph);
    std::string keys, comment = "the arrays that the model takes";
    if (inputs.size() == 1 && inputs[0].shape.ranked && inputs[0].shape.dims.size() == 4) {
      const auto channels = [&](std::size_t axis) {
        const Dim& dim = inputs[0].shape.dims[axis];
        return dim.known() && (dim.value == 1 || dim.value == 3 || dim.value == 4);
      };
      if (channels(1) || channels(3)) {
        keys = channels(1) ? ", layout: nhwc_to_nchw, scale: 1/255" : ", layout: nhwc, scale: 1/255";
        comment = "npy, npz, HDF5 or a folder of images; preprocessing is (x * scale - mean) / std";
      }
    }
    std::string suffix = "npy";
    if (inputs.size() > 1) {
      suffix = "npz";
      comment = "npz: an array for each of";
      for (const InputSpec& input : inputs) comment += " " + input.name;
    }
    const Shape& out = graph.value(graph.outputs.at(0)).shape;
    const bool classes = graph.outputs.size() == 1 && (!out.ranked || out.dims.size() == 2);
    return fmt::format(
        "datasets:\n"
        "  # {}\n"
        "  calibration: {{path: calibration.{}{}, samples: 512}}\n"
        "  test: {{path: test.{}{}{}}}\n"
        "evaluate:\n"
        "  data: test\n"
        "  metrics: [{}output_sqnr_db, clipping_rate]\n"
        "  gates:\n"
        "    - {{metric: {}}}\n",
        comment, suffix, keys, suffix, classes ? ", labels: labels.npy" : "", keys, classes ? "top1, " : "",
        classes ? "top1_drop, max: 0.005" : "output_sqnr_db, min: 25");
  }

  std::string path_, model_, base_;
  bool force_ = false;
};

}  // namespace

std::unique_ptr<Command> make_recipe_list() { return std::make_unique<RecipeList>(); }
std::unique_ptr<Command> make_recipe_show() { return std::make_unique<RecipeShow>(); }
std::unique_ptr<Command> make_recipe_check() { return std::make_unique<RecipeCheck>(); }
std::unique_ptr<Command> make_recipe_schema() { return std::make_unique<RecipeSchema>(); }
std::unique_ptr<Command> make_recipe_init() { return std::make_unique<RecipeInit>(); }

}  // namespace pare
