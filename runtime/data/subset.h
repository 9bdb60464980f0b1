#pragma once
// Splits an opened training set into the part that trains and the part that is held out.

#include "runtime/data/format.h"
#include "runtime/data/held_out.h"

namespace lockstep::data {

// Makes an evaluation set of the samples of the training set that `held_out` takes, by the names of
// their files or else by their records, and leaves the others in it. Without `need_train` no
// training set is left. `where`: for messages. Throws DataError if one of the parts would be empty.
void hold_out(const HeldOut& held_out,
              const std::string& where,
              bool need_train,
              OpenedSource* opened);

}  // namespace lockstep::data
