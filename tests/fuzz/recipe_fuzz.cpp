// The recipe reader: any text ends in a checked recipe or in an Error that blames the text, and a recipe that
// was accepted reads back from its canonical text to the same bytes.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "engine/base/error.h"
#include "recipes/grammar/load.h"
#include "tests/fuzz/blame.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  pare::RecipeOptions options;
  options.check_files = false;
  std::string canonical;
  try {
    const std::string_view text(reinterpret_cast<const char*>(bytes), size);
    canonical = pare::parse_recipe(text, "fuzz", "/nonexistent", options).text;
  } catch (const pare::Error& error) {
    pare::fuzz::expect_blames_input(error, {pare::ErrorCode::kUsage, pare::ErrorCode::kBadFile});
    return 0;
  }
  if (pare::parse_recipe(canonical, "fuzz", "/nonexistent", options).text != canonical) std::abort();
  return 0;
}
