#pragma once
// Figures of inspections and comparisons, and figures as files.

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "report/comparison.h"
#include "report/figure.h"
#include "report/inspection.h"

namespace metaformer {

struct NamedFigure {
  std::string name;  // of its file, without the ending
  figures::Figure figure;
};

// Heat maps show the first tokens.
constexpr std::int64_t most_drawn_tokens = 48;
// Heat maps of forms that have more cells than this in one layer are left out.
constexpr std::int64_t most_drawn_cells = 100'000;

// For each layer with scores: attention_N, scores_N, forms_N, distances_N; and eigenvalues, norms; for a part with its
// name: encoder_attention_N, ... `run`: its name, for the titles. `beside`: another run's inspection, whose forms are
// drawn below those of the same layer; or nullptr.
std::vector<NamedFigure> figures_of(const TextInspection& inspection, const std::string& run,
                                    const TextInspection* beside = nullptr);

// Whether a file has the name of one of these figures as SVG.
bool is_picture(const std::string& file);

// gradients, loss_by_position and loss_by_context, as far as they were measured.
std::vector<NamedFigure> figures_of(const SplitInspection& inspection, const std::string& run);

// For each measure the values of all groups (ID), and their differences to the reference (ID_differences).
std::vector<NamedFigure> figures_of(const Comparison& comparison);

// Writes figures for papers into a folder, which it creates: NAME.svg and, with rsvg-convert of librsvg, NAME.pdf.
// Without that program there is one warning, and no PDF. Errors: exit code 1 when a file cannot be written.
class FigureFolder {
 public:
  explicit FigureFolder(std::filesystem::path folder);

  // Characters of `name` other than letters, digits, '.', '-' and '_' become '_'. A repeated name gets a number.
  void write(const std::string& name, const figures::Figure& figure);

  std::size_t written() const { return names_.size(); }

 private:
  std::filesystem::path folder_;
  std::set<std::string> names_;
  bool with_pdf_ = true;
};

}  // namespace metaformer
