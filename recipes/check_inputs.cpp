// What can be said against a recipe when its model and data open, before any work.
#include "engine/base/error.h"
#include "engine/base/paths.h"
#include "graphsurgeon/load.h"
#include "graphsurgeon/open_checkpoint.h"
#include "graphsurgeon/simplify.h"
#include "quant/placement/placement.h"
#include "recipes/checkpoint/export_checkpoint.h"
#include "recipes/checkpoint/planned_layers.h"
#include "recipes/grammar/fields.h"
#include "recipes/grammar/mistakes.h"
#include "recipes/stages.h"

namespace pare {
namespace {

// "add layout=nhwc_to_nchw,scale=1/255", as it is written behind --data, in a recipe's form.
std::string as_recipe_keys(std::string hint) {
  if (hint == "check the path") return hint + "; a path in a recipe is relative to the recipe's own folder";
  if (hint.rfind("add ", 0) != 0) return hint;
  for (std::size_t i = hint.find('='); i != std::string::npos; i = hint.find('=', i))
    hint.replace(i, 1, ": ");
  for (std::size_t i = hint.find(','); i != std::string::npos; i = hint.find(',', i + 2))
    if (i + 1 < hint.size() && hint[i + 1] != ' ') hint.insert(i + 1, " ");
  return hint;
}

// Groups of every layer, and that the files of the export hold what the layers become. Errors as their makers
// have them.
void fit_layers(const Recipe& r, const Graph& graph) {
  const std::string path = r.resolve(r.model.path);
  const ModelKind kind = model_kind(path);
  if (is_checkpoint_form(r.export_as.model) && kind != ModelKind::kCheckpoint)
    throw make_error(ErrorCode::kUsage, "{} is made of a checkpoint folder", r.export_as.model)
        .at("export.model")
        .hint("model.path names another kind of model");
  if (!r.quantize) return;
  const quant::Spec spec = fitted_choices(r).spec;
  if (is_checkpoint_form(r.export_as.model)) return;  // fitted_choices() has looked
  if (kind == ModelKind::kCheckpoint || kind == ModelKind::kGguf) {
    planned_layers(open_checkpoint(path), spec, true);
    return;
  }
  try {
    quant::place(graph, spec);
  } catch (const Error&) {  // of a layer that surgery takes away?
    if (r.surgery.empty()) throw;
    Graph simple = graph;
    SimplifyOptions options;
    options.self_check = false;
    simplify(simple, options);
    quant::place(simple, spec);
  }
}

// The key that decides: what the error names, the export of what no file holds, the group of a layer's error.
std::string key_of(const Error& error, const TreeNode& tree) {
  for (const char* section : {"quantize.", "export."})
    if (error.where().rfind(section, 0) == 0) return error.where();
  if (error.code() == ErrorCode::kUnsupported && error.where().rfind("layer ", 0) != 0) return "export.model";
  const TreeNode* quantize = tree.find("quantize");
  if (quantize != nullptr && quantize->find("group_size") != nullptr) return "quantize.group_size";
  const TreeNode* weights = quantize != nullptr ? quantize->find("weights") : nullptr;
  if (weights != nullptr && weights->find("group_size") != nullptr) return "quantize.weights.group_size";
  return quantize != nullptr && quantize->find("rules") != nullptr ? "quantize.rules" : "quantize";
}

void check_layers(const LoadedRecipe& loaded, const Graph& graph) {
  try {
    fit_layers(loaded.recipe, graph);
  } catch (const Error& error) {
    const std::string& where = error.where();
    const std::string what = where.rfind("layer ", 0) == 0 ? where + ": " + error.what() : error.what();
    throw Error(error.code(), what).at(place_of(loaded.tree, key_of(error, loaded.tree))).hint(error.hint());
  }
}

}  // namespace

void check_inputs(const LoadedRecipe& loaded) {
  check_inputs(loaded, load_structure(loaded.recipe.resolve(loaded.recipe.model.path)));
}

void check_inputs(const LoadedRecipe& loaded, const Graph& graph) {
  const Recipe& r = loaded.recipe;
  const std::vector<InputSpec> inputs = model_inputs(graph);
  Mistakes mistakes;
  const auto open = [&](const std::string& name) {
    try {
      Dataset data(resolved_dataset(r, name), inputs);
    } catch (const Error& error) {
      Error placed(error.code(), error.what());
      placed.hint(as_recipe_keys(error.hint())).at(place_of(loaded.tree, "datasets." + name));
      // What stands in the way may be another file, which the error names.
      if (!error.where().empty()) placed.add_context(fmt::format("reading '{}'", error.where()));
      placed.add_context(fmt::format("opening data set '{}'", name));
      mistakes.add(std::move(placed));
    }
  };
  if (r.calibrate && !r.calibrate->data.empty()) open(r.calibrate->data);
  if (r.evaluate && !(r.calibrate && r.calibrate->data == r.evaluate->data)) open(r.evaluate->data);
  mistakes.collect([&] { check_layers(loaded, graph); });
  mistakes.raise();
}

}  // namespace pare
