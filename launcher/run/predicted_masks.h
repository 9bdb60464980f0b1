#pragma once
// Predicted classes of pixels as a folder of PNG masks.

#include <optional>
#include <string>

#include "launcher/command_line/results.h"
#include "launcher/run/evaluation.h"

namespace lockstep::launcher {

// Throws ConfigError unless `path`, the value of --out, is a new or empty folder in another one.
void require_mask_folder(const std::string& path);

// Writes a mask for each sample of the evaluation set: 8-bit grey, the number of the class of each
// pixel, in the size in which the network sees the image. It has the name of the sample's image,
// with the ending .png, or the sample's number. Records that cannot be read get none. Returns, on
// rank 0, samples, masks, height and width and, if some pixels have a target, labelled_pixels,
// eval_accuracy and eval_mean_iou. Collective.
Json write_masks(const EvaluationRun& run, const std::string& folder);

// The line for the terminal.
std::string text_of_masks(const Json& masks, const std::string& folder);

}  // namespace lockstep::launcher
