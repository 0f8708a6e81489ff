# Texts made of IMDb's reviews. To be sourced after sweep.sh:
#
#   write_texts NAME...   writes $DATA/NAME by experiments/write_NAME.py, where it is missing, from the archive that IMDB names
#
#   DATA=FOLDER   where they lie; default /tmp/metaformer_texts: paths are a part of configs, whose rows are found again so
#   IMDB=ARCHIVE  of IMDb's reviews, with the unlabelled ones
# shellcheck shell=bash disable=SC2154
DATA=$(realpath -m -- "${DATA:-/tmp/metaformer_texts}")

write_texts() {
  local name
  for name in "$@"; do
    [[ -d $DATA/$name ]] && continue
    [[ -n ${IMDB:-} ]] || die 2 "IMDB=ARCHIVE: names the archive of IMDb's reviews, from which $DATA/$name is written"
    python3 "$experiments/write_$name.py" "$IMDB" "$DATA/.$name"
    mv -- "$DATA/.$name" "$DATA/$name"
  done
}
