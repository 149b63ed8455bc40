"""What a collective algorithm is made of: transfers of payload pieces between ranks and switches."""
