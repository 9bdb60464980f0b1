#pragma once
// How a folder of images is laid out.

#include <string>

#include "runtime/config/run_config.h"

namespace lockstep::data {

struct FoundFolders {
  DataConfig data;
  std::string text;  // what was found, for the log; empty if `data` is unchanged
};

// Finds the images below data.dir if data.image_folder has the usual names (train: "train", eval:
// "val"), but the folders do not. The layouts, of which the first that fits is taken:
//
//   train/CLASS/*.jpg or training/CLASS/*.jpg, and one of val, valid, validation, eval, dev, or
//   else test or testing, with folders of the same classes
//   the same without evaluation images: data.eval_fraction is set
//   CLASS/*.jpg, also if a class is called train: data.image_folder.train is "."
//
// Names count in any case (Train). Returns `data` as it is if other names are configured, if the
// folders are there, or if no layout fits. A data.eval_fraction of the config is kept. Throws
// ConfigError if several folders could be the evaluation images.
FoundFolders find_folders(DataConfig data);

// For `predict`: if data.dir has images at its top and no training images, they are the images to
// predict, without classes.
FoundFolders find_inputs(DataConfig data);

// The end of a message about a missing folder of training images: what is in `dir` instead, and
// what is expected.
std::string layout_hint(const std::string& dir);

}  // namespace lockstep::data
