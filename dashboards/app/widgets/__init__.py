"""What pages are made of. Only this folder and the pages use Streamlit; what is shown is worked out in ``lora_watch.explore``."""
